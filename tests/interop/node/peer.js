'use strict';
// The official Node client, told over its input what to do. The commands are described in drivers.py.

const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');

const nameSrv = process.argv[2];
const quiet = { debug() {}, info() {}, warn() {}, error: console.error };
// Asked for where the name servers are, which the client was told.
const httpclient = { async request() { throw new Error('there is no address server'); } };
// What signs requests, from the environment; neither is there if nothing does.
const account = { accessKey: process.env.PEER_ACCESS_KEY, secretKey: process.env.PEER_SECRET_KEY };
const consumers = new Map();
let producer;

function say(line) {
  process.stdout.write(String(line).replace(/\n/g, ' ') + '\n');
}

async function send(options) {
  if (!producer) {
    producer = new Producer({ httpclient, nameSrv, producerGroup: 'node-producer', ...account, logger: quiet });
    producer.on('error', error => say(`trouble ${error}`));
    await producer.ready();
  }
  const message = new Message(options.topic, options.tags || '', options.body);
  if (options.keys) {
    message.keys = [ options.keys ];
  }
  if (options.delay) {
    message.delayTimeLevel = Number(options.delay);
  }
  const result = await producer.send(message);
  const queue = result.messageQueue;
  say(`sent ${result.sendStatus} ${result.msgId} ${result.msgId} ${queue.brokerName} ${queue.queueId} ${result.queueOffset}`);
}

async function push(options) {
  const failures = Number(options.fail || 0);
  const consumer = new Consumer({
    httpclient,
    nameSrv,
    consumerGroup: options.group,
    instanceName: options.name,
    rebalanceInterval: 1000, // this client does not listen to the broker's notices
    isBroadcast: Boolean(options.broadcast),
    ...account,
    logger: quiet,
  });
  consumers.set(options.name, consumer);
  consumer.on('error', error => say(`trouble ${error}`));
  consumer.subscribe(options.topic, options.tags || '*', async message => {
    const times = message.reconsumeTimes;
    say(`got ${options.name} ${message.topic} ${message.queueId} ${message.queueOffset} ${times} ${message.tags || '-'} ${message.body}`);
    if (times < failures) {
      return Consumer.ACTION_RETRY;
    }
  });
  await consumer.ready();
}

async function obey(command, options) {
  switch (command) {
    case 'send':
      return await send(options);
    case 'push':
      return await push(options);
    case 'queues': {
      const table = consumers.get(options.name).processQueueTable;
      const queues = Array.from(table.values(), item => item.messageQueue).filter(queue => !queue.topic.startsWith('%RETRY%'));
      return say(`queues ${queues.map(queue => `${queue.brokerName}:${queue.queueId}`).join(' ')}`);
    }
    case 'leave': {
      const consumer = consumers.get(options.name);
      consumers.delete(options.name);
      return await consumer.close();
    }
    default:
      throw new Error(`no such command: ${command}`);
  }
}

async function main() {
  say('ready');
  let number = 0;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    number++;
    const [ command, ...pairs ] = line.split(' ');
    const options = {};
    for (const pair of pairs) {
      const at = pair.indexOf('=');
      options[pair.slice(0, at)] = pair.slice(at + 1);
    }
    try {
      await obey(command, options);
      say(`done ${number}`);
    } catch (error) {
      say(`failed ${number} ${error}`);
    }
  }
}

main();
