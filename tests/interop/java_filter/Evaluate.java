import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * RocketMQ's own filters, asked line by line. Texts are UTF-16 in hexadecimal digits, so that any text is one word.
 *
 *   EXPRESSION NAME,VALUE,... NAME,VALUE,...   for each message: true, false, null or error; only "refused" if it is none
 *   bloom PERCENT GROUPS TEXT                  number of bits and positions
 */
public class Evaluate {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            out.println(words[0].equals("bloom") ? bloom(words) : answers(words));
        }
        out.flush();
    }

    private static String bloom(String[] words) {
        BloomFilter filter = BloomFilter.createByFn(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
        String positions = Arrays.toString(filter.calcBitPositions(text(words[3])));
        return filter.getM() + " " + positions.replaceAll("[\\[\\],]", "");
    }

    private static String answers(String[] words) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text(words[0]));
        } catch (Exception refused) {
            return "refused";
        }
        StringBuilder answers = new StringBuilder();
        for (int i = 1; i < words.length; i++) {
            answers.append(i > 1 ? " " : "").append(answer(expression, properties(words[i])));
        }
        return answers.toString();
    }

    private static String answer(Expression expression, Map<String, Object> properties) {
        try {
            return String.valueOf(expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            }));
        } catch (Exception failed) {
            return "error";
        }
    }

    private static Map<String, Object> properties(String word) {
        Map<String, Object> properties = new HashMap<>();
        String[] parts = word.split(",", -1);
        for (int i = 0; i + 1 < parts.length; i += 2) {
            properties.put(text(parts[i]), text(parts[i + 1]));
        }
        return properties;
    }

    private static String text(String digits) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i + 4 <= digits.length(); i += 4) {
            text.append((char) Integer.parseInt(digits.substring(i, i + 4), 16));
        }
        return text.toString();
    }
}
