// The official Go client, told over its input what to do. The commands are described in drivers.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const names = "abcdefgh"

type options map[string]string

func (o options) number(key string, otherwise int) int {
	if text, found := o[key]; found {
		if value, err := strconv.Atoi(text); err == nil {
			return value
		}
	}
	return otherwise
}

type peer struct {
	nameServers []string
	producers   map[string]rocketmq.Producer
	payers      map[string]*payer // by group
	consumers   map[string]rocketmq.PushConsumer
	replier     rocketmq.Producer // of consumers, in whose threads no map is touched

	lock   sync.Mutex
	queues map[string]string // by consumer
}

func main() {
	rlog.SetLogLevel("error")
	p := &peer{
		nameServers: []string{os.Args[1]},
		producers:   map[string]rocketmq.Producer{},
		payers:      map[string]*payer{},
		consumers:   map[string]rocketmq.PushConsumer{},
		queues:      map[string]string{},
	}
	say("ready")
	lines := bufio.NewScanner(os.Stdin)
	for number := 1; lines.Scan(); number++ {
		words := strings.Split(lines.Text(), " ")
		o := options{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			o[key] = value
		}
		if err := p.obey(words[0], o); err != nil {
			say("failed %d %v", number, err)
		} else {
			say("done %d", number)
		}
	}
}

func (p *peer) obey(command string, o options) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	switch command {
	case "send":
		return p.sendSync(ctx, "plain", message(o, o["body"]))
	case "async":
		return p.async(ctx, o)
	case "oneway":
		oneway, err := p.producer("plain")
		for i := 0; err == nil && i < o.number("count", 0); i++ {
			err = oneway.SendOneWay(ctx, message(o, fmt.Sprintf("%s-%d", o["topic"], i)))
		}
		return err
	case "batch":
		var messages []*primitive.Message
		for i := 0; i < o.number("count", 0); i++ {
			messages = append(messages, message(o, fmt.Sprintf("%s-%d", o["topic"], i)))
		}
		return p.sendSync(ctx, "plain", messages...)
	case "ordered":
		for step := 0; step < o.number("count", 0); step++ {
			for order := 0; order < o.number("orders", 0); order++ {
				sent := message(o, fmt.Sprintf("%c-%d", names[order], step)).WithShardingKey(string(names[order]))
				if err := p.sendSync(ctx, "ordered", sent); err != nil {
					return err
				}
			}
		}
		return nil
	case "request":
		by, err := p.producer("plain")
		if err != nil {
			return err
		}
		reply, err := by.Request(ctx, 10*time.Second, message(o, o["body"]))
		if err == nil {
			say("reply %s", reply.Body)
		}
		return err
	case "transaction":
		return p.transaction(ctx, o)
	case "push":
		return p.push(o)
	case "queues":
		p.lock.Lock()
		defer p.lock.Unlock()
		say("queues %s", p.queues[o["name"]])
		return nil
	case "leave":
		leaving := p.consumers[o["name"]]
		delete(p.consumers, o["name"])
		return leaving.Shutdown()
	}
	return fmt.Errorf("no such command: %s", command)
}

// What signs requests, from the environment; nil if nothing does.
var account = func() *primitive.Credentials {
	if os.Getenv("PEER_ACCESS_KEY") == "" {
		return nil
	}
	return &primitive.Credentials{AccessKey: os.Getenv("PEER_ACCESS_KEY"), SecretKey: os.Getenv("PEER_SECRET_KEY")}
}()

// The producer of a kind: "plain" takes the queues in turn, "ordered" the one that the sharding key says.
func (p *peer) producer(kind string) (rocketmq.Producer, error) {
	if known, found := p.producers[kind]; found {
		return known, nil
	}
	with := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(p.nameServers)),
		producer.WithGroupName("go-" + kind),
		producer.WithInstanceName(fmt.Sprintf("%s-%d", kind, os.Getpid())), // replies go to the client of that id
	}
	if account != nil {
		with = append(with, producer.WithCredentials(*account))
	}
	if kind == "ordered" {
		with = append(with, producer.WithQueueSelector(byLetter{}))
	}
	made, err := rocketmq.NewProducer(with...)
	if err == nil {
		err = made.Start()
	}
	p.producers[kind] = made
	return made, err
}

type byLetter struct{}

func (byLetter) Select(sent *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	return queues[strings.Index(names, sent.GetShardingKey())%len(queues)]
}

func message(o options, body string) *primitive.Message {
	made := primitive.NewMessage(o["topic"], []byte(body))
	if tags, found := o["tags"]; found {
		made.WithTag(tags)
	}
	if keys, found := o["keys"]; found {
		made.WithKeys([]string{keys})
	}
	if level := o.number("delay", 0); level > 0 {
		made.WithDelayTimeLevel(level)
	}
	return made
}

func (p *peer) sendSync(ctx context.Context, kind string, messages ...*primitive.Message) error {
	by, err := p.producer(kind)
	if err != nil {
		return err
	}
	result, err := by.SendSync(ctx, messages...)
	if err == nil {
		sent(result)
	}
	return err
}

func (p *peer) async(ctx context.Context, o options) error {
	by, err := p.producer("plain")
	var missing sync.WaitGroup
	for i := 0; err == nil && i < o.number("count", 0); i++ {
		missing.Add(1)
		err = by.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, failed error) {
			defer missing.Done()
			if failed != nil {
				say("unsent %v", failed)
			} else {
				sent(result)
			}
		}, message(o, fmt.Sprintf("%s-%d", o["topic"], i)))
	}
	if err == nil {
		missing.Wait()
	}
	return err
}

// A producer of transactions. What it is told counts for its local transaction (state) and, whoever sent the half
// message, for the checks of the broker (check, of the whole group), as in java/Transactions.java.
type payer struct {
	group    string
	producer rocketmq.TransactionProducer

	lock         sync.Mutex
	state, check primitive.LocalTransactionState
}

var states = map[string]primitive.LocalTransactionState{
	"COMMIT_MESSAGE":   primitive.CommitMessageState,
	"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
	"UNKNOW":           primitive.UnknowState,
	"":                 primitive.UnknowState,
}

func (p *payer) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.state
}

func (p *payer) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	p.lock.Lock()
	defer p.lock.Unlock()
	say("checked %s %s %s", p.group, half.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
		half.TransactionId)
	return p.check
}

func (p *peer) transaction(ctx context.Context, o options) error {
	by, found := p.payers[o["group"]]
	if !found {
		by = &payer{group: o["group"]}
		with := []producer.Option{
			producer.WithNsResolver(primitive.NewPassthroughResolver(p.nameServers)),
			producer.WithGroupName(by.group),
			producer.WithInstanceName(by.group),
		}
		if account != nil {
			with = append(with, producer.WithCredentials(*account))
		}
		made, err := rocketmq.NewTransactionProducer(by, with...)
		if err == nil {
			err = made.Start()
		}
		if err != nil {
			return err
		}
		by.producer = made
		p.payers[by.group] = by
	}
	by.lock.Lock()
	by.state, by.check = states[o["state"]], states[o["check"]]
	by.lock.Unlock()
	result, err := by.producer.SendMessageInTransaction(ctx, message(o, o["body"]))
	if err == nil {
		sent(result.SendResult)
	}
	return err
}

func sent(result *primitive.SendResult) {
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[result.Status]
	if status == "" {
		status = fmt.Sprintf("SEND_%d", result.Status)
	}
	id := result.MsgID
	if id == "" {
		id = "-" // batches have none
	}
	queue := result.MessageQueue
	say("sent %s %s %s %s %d %d", status, id, result.OffsetMsgID, queue.BrokerName, queue.QueueId, result.QueueOffset)
}

func (p *peer) push(o options) error {
	name, failures := o["name"], int32(o.number("fail", 0))
	if o["reply"] != "" {
		replier, err := p.producer("plain")
		if err != nil {
			return err
		}
		p.replier = replier
	}
	with := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(p.nameServers)),
		consumer.WithGroupName(o["group"]),
		consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(o["orderly"] != ""),
		consumer.WithStrategy(p.noted(name, o["topic"])),
	}
	if account != nil {
		with = append(with, consumer.WithCredentials(*account))
	}
	if o["max"] != "" {
		with = append(with, consumer.WithMaxReconsumeTimes(int32(o.number("max", 16))))
	}
	if o["broadcast"] != "" {
		with = append(with, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	made, err := rocketmq.NewPushConsumer(with...)
	if err != nil {
		return err
	}
	tags := o["tags"]
	if tags == "" {
		tags = "*"
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	err = made.Subscribe(o["topic"], selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				got(name, message)
				if o["reply"] != "" {
					p.reply(message)
				}
				if message.ReconsumeTimes < failures {
					return consumer.ConsumeRetryLater, nil
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err == nil {
		err = made.Start()
	}
	p.consumers[name] = made
	return err
}

func (p *peer) reply(asked *primitive.MessageExt) {
	answer, err := consumer.CreateReplyMessage(asked, nil)
	if err == nil {
		answer.Body = append([]byte("re:"), asked.Body...) // 2.1.2 would read properties out of it
		_, err = p.replier.SendSync(context.Background(), answer)
	}
	if err != nil {
		say("unsent %v", err)
	}
}

// The usual allocation, which also notes which queues of the topic the consumer got: the client tells nobody.
func (p *peer) noted(name, topic string) consumer.AllocateStrategy {
	return func(
		group, client string, all []*primitive.MessageQueue, clients []string,
	) []*primitive.MessageQueue {
		mine := consumer.AllocateByAveragely(group, client, all, clients)
		if len(all) > 0 && all[0].Topic == topic {
			var texts []string
			for _, queue := range mine {
				texts = append(texts, fmt.Sprintf("%s:%d", queue.BrokerName, queue.QueueId))
			}
			p.lock.Lock()
			p.queues[name] = strings.Join(texts, " ")
			p.lock.Unlock()
		}
		return mine
	}
}

func got(name string, message *primitive.MessageExt) {
	tags := message.GetTags()
	if tags == "" {
		tags = "-"
	}
	say("got %s %s %d %d %d %s %s", name, message.Topic, message.Queue.QueueId, message.QueueOffset,
		message.ReconsumeTimes, tags, message.Body)
}

var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(strings.ReplaceAll(fmt.Sprintf(format, values...), "\n", " "))
}
