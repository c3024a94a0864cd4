import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;

/** Fetches each URL with the platform's own client and prints status and digest. */
public class Fetch {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(10)).build();
        for (String url : urls) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10)).build();
            HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(answer.body());
            System.out.println(answer.statusCode() + " " + HexFormat.of().formatHex(digest));
        }
    }
}
