# SPDX-License-Identifier: Apache-2.0
# Compile, run with threads, processes, files, a server, a collector that fits; a heap that is too small.
cat >M.java <<'J'
import java.io.*; import java.net.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class M {
  public static void main(String[] a) throws Exception {
    if (a.length > 0) { List<byte[]> l = new ArrayList<>(); while (true) l.add(new byte[1 << 20]); }
    System.out.println(IntStream.range(0, 1000000).parallel().asLongStream().sum());
    ExecutorService e = Executors.newFixedThreadPool(16); List<Future<Integer>> f = new ArrayList<>();
    for (int i = 0; i < 100; i++) { int n = i; f.add(e.submit(() -> n * n)); } int s = 0; for (var x : f) s += x.get(); e.shutdown(); System.out.println(s);
    Process p = new ProcessBuilder("sh", "-c", "echo child; exit 3").start(); System.out.print(new String(p.getInputStream().readAllBytes())); System.out.println(p.waitFor());
    Path d = Files.createTempDirectory("m"); Files.writeString(d.resolve("f"), "text"); Files.createSymbolicLink(d.resolve("l"), Path.of("f")); System.out.println(Files.readString(d.resolve("l")));
    try (WatchService w = FileSystems.getDefault().newWatchService()) { d.register(w, StandardWatchEventKinds.ENTRY_CREATE); Files.createFile(d.resolve("n")); System.out.println(w.poll(9, TimeUnit.SECONDS).pollEvents().get(0).context()); }
    try (ServerSocket l = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) { Thread t = new Thread(() -> { try (Socket c = new Socket(l.getInetAddress(), l.getLocalPort())) { c.getOutputStream().write("hello\n".getBytes()); } catch (IOException x) { System.out.println(x); } }); t.start(); System.out.println(new BufferedReader(new InputStreamReader(l.accept().getInputStream())).readLine()); t.join(); }
    try (RandomAccessFile r = new RandomAccessFile(d.resolve("m").toFile(), "rw")) { r.getChannel().map(java.nio.channels.FileChannel.MapMode.READ_WRITE, 0, 1 << 20).put(5, (byte) 7); System.out.println(r.length()); System.out.println(r.getChannel().tryLock() != null); }
    try { Files.delete(Path.of("/usr/none")); } catch (NoSuchFileException x) { System.out.println("no such file"); }
    System.out.println(System.getProperty("user.home").isEmpty() + " " + (Runtime.getRuntime().availableProcessors() > 0));
  }
}
J
javac M.java && java M && java -Xmx64m M x 2>&1 | grep -o 'java.lang.OutOfMemoryError: Java heap space'
for gc in Serial Parallel G1 Z; do java -XX:+Use${gc}GC -Xmx200m M | md5sum; done; jar cfe m.jar M M*.class && java -jar m.jar | tail -1
