//! A private internet of a test: names with scripted answers, and public addresses of another machine.
//!
//! It consists of two network namespaces with a virtual cable. The test, its servers and their browsers are in one; the
//! public addresses are in the other, because no session may reach the addresses of its own machine.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

/// The address of this machine.
pub(super) const OURS: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 1);
/// Two public addresses of the other machine.
pub(super) const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
pub(super) const PUBLIC_TOO: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 15);

/// Creates the namespace of the other machine. It exists until the standard input is closed.
const WORLD: &str = "ip link set lo up && echo up && read over";
/// Creates the namespace of the test, with a cable to the other one. The first argument is the process of the other
/// one.
const HERE: &str = r#"ip link set lo up && ip link add way type veth peer name way netns "$0" &&
ip address add 93.184.215.1/24 dev way && ip link set way up &&
nsenter --target "$0" --net sh -c 'ip address add 93.184.215.14/24 dev way && ip address add 93.184.215.15/24 dev way &&
ip link set way up' && echo up && read over"#;

/// The internet of a test. Servers and browsers that the test starts are in the same namespace.
pub(super) struct Internet {
    names: Arc<Names>,
    directory: TempDir,
    world: File,
}

#[derive(Default)]
struct Names {
    answers: Mutex<HashMap<String, VecDeque<Ipv4Addr>>>,
    lookups: Mutex<Vec<String>>,
}

/// A process that ends when this value is dropped.
pub(super) struct Holder(Child);

impl Holder {
    /// Starts a program and waits until it prints `up`. Returns the rest of its output.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<(Self, BufReader<ChildStdout>)> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let holder = Self(child);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "up\n", "{command:?} said {line:?}");
        Ok((holder, output))
    }

    fn namespace(script: &str, words: &[String]) -> anyhow::Result<(Self, File)> {
        let (holder, _) = Self::start(Command::new("unshare").args(["--net", "sh", "-c", script]).args(words))?;
        let namespace = File::open(format!("/proc/{}/ns/net", holder.0.id()))?;
        Ok((holder, namespace))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs a function in a namespace, in a thread of its own.
fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let work = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Runs a test in an internet of its own.
pub(super) fn within(test: impl FnOnce(&Internet) -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    let (other_end, world) = Holder::namespace(WORLD, &["sh".to_owned()])?;
    let (_here, here) = Holder::namespace(HERE, &[other_end.0.id().to_string()])?;
    inside(&here, || test(&Internet::new(world)?))
}

impl Internet {
    fn new(world: File) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        // A long timeout, because a repeated query would consume the next answer of a name.
        fs::write(directory.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:30 attempts:2\n")?;
        let names = Arc::<Names>::default();
        let (socket, known) = (UdpSocket::bind("127.0.0.1:53")?, Arc::clone(&names));
        thread::spawn(move || known.serve(&socket));
        Ok(Self { names, directory, world })
    }

    /// Runs a function on the other machine.
    pub(super) fn afar<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        inside(&self.world, work)
    }

    /// Disconnects the cable: bytes in flight are lost, and neither side is notified.
    pub(super) fn pull_the_cable(&self) -> anyhow::Result<()> {
        self.afar(|| {
            ensure!(Command::new("ip").args(["link", "set", "way", "down"]).status()?.success(), "ip failed");
            Ok(())
        })
    }

    /// Returns the file that a server needs as `/etc/resolv.conf` to resolve the names.
    pub(super) fn resolv_conf(&self) -> PathBuf {
        self.directory.path().join("resolv.conf")
    }

    /// Sets the answers of a name: each address once, then always the last one. The answers have a TTL of zero.
    pub(super) fn name(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.names.answers.lock().insert(name.to_owned(), addresses.iter().copied().collect());
    }

    /// Returns the number of lookups of a name.
    pub(super) fn lookups(&self, name: &str) -> usize {
        self.names.lookups.lock().iter().filter(|one| *one == name).count()
    }

    /// Serves one page at an address, and counts the requests.
    pub(super) fn page(&self, address: (Ipv4Addr, u16), html: &'static str) -> anyhow::Result<Arc<AtomicUsize>> {
        let bind = || Ok(TcpListener::bind(SocketAddr::from(address))?);
        let listener = if address.0.is_loopback() { bind()? } else { inside(&self.world, bind)? };
        let came = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&came);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                // The browser may close a connection early.
                thread::spawn(move || drop(serve(stream, html)));
            }
        });
        Ok(came)
    }

    /// Serves TLS with a self-signed certificate, and records the kind of each handshake.
    pub(super) fn tls(&self, address: Ipv4Addr, name: &str) -> anyhow::Result<Tls> {
        let [key, certificate] = certificate(self.directory.path(), name)?;
        let mut command = Command::new("python3");
        command.args(["-u", "-c", TLS]).args([certificate.as_os_str(), key.as_os_str(), address.to_string().as_ref()]);
        let (server, lines) = inside(&self.world, || Holder::start(&mut command))?;
        let log = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&log);
        thread::spawn(move || {
            lines.lines().map_while(Result::ok).for_each(|line| received.lock().push(line));
        });
        Ok(Tls { _server: server, log })
    }

    /// Starts a reverse proxy on the address of this machine, which forwards port 80, and port 443 with TLS, to a
    /// server.
    pub(super) fn front(&self, name: &str, server: SocketAddr) -> anyhow::Result<Front> {
        let [key, certificate] = certificate(self.directory.path(), name)?;
        let trusted = fs::read_to_string(&certificate)?;
        let mut command = Command::new("python3");
        command.args(["-c", FRONT]).args([certificate, key]);
        command.args([OURS.to_string(), server.ip().to_string(), server.port().to_string()]);
        Ok(Front { _proxy: Holder::start(&mut command)?.0, trusted })
    }
}

/// A reverse proxy.
pub(super) struct Front {
    _proxy: Holder,
    /// The certificate that its TLS clients must trust.
    pub(super) trusted: String,
}

const FRONT: &str = r#"
import asyncio, ssl, sys
certificate, key, here, host, port = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
async def pour(reader, writer):
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    writer.close()
async def serve(reader, writer):
    back, on = await asyncio.open_connection(host, int(port))
    await asyncio.gather(pour(reader, on), pour(back, writer), return_exceptions=True)
async def main():
    plain = await asyncio.start_server(serve, here, 80)
    secure = await asyncio.start_server(serve, here, 443, ssl=context)
    print("up", flush=True)
    await asyncio.gather(plain.serve_forever(), secure.serve_forever())
asyncio.run(main())
"#;

/// Returns the files of a key and its self-signed certificate.
pub(super) fn certificate(directory: &Path, name: &str) -> anyhow::Result<[PathBuf; 2]> {
    let [key, certificate] = ["key.pem", "certificate.pem"].map(|file| directory.join(file));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-subj", &format!("/CN={name}"), "-addext", &format!("subjectAltName=DNS:{name}")])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), certificate.as_os_str()])
        .output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok([key, certificate])
}

/// A TLS server.
pub(super) struct Tls {
    _server: Holder,
    log: Arc<Mutex<Vec<String>>>,
}

impl Tls {
    /// Returns the kinds of the handshakes so far: `full` or `resumed`.
    pub(super) fn handshakes(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

const TLS: &str = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.maximum_version = ssl.TLSVersion.TLSv1_2
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server((sys.argv[3], 443))
print("up")
def serve(plain):
    try:
        with context.wrap_socket(plain, server_side=True) as stream:
            # Not the picture of a page, which is asked for whenever there is time.
            if stream.recv(65536).startswith(b"GET / "):
                print("resumed" if stream.session_reused else "full")
                head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
                stream.sendall(head.encode() + b"secure")
    except OSError:
        pass
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

fn serve(stream: TcpStream, html: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.by_ref().take(65_536).read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = html.len();
    let headers = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nConnection: close";
    write!(reader.get_mut(), "HTTP/1.1 200 OK\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{html}")
}

impl Names {
    fn serve(&self, socket: &UdpSocket) {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = self.answer(&packet[..length]) {
                drop(socket.send_to(&answer, from));
            }
        }
    }

    /// Returns the response to a query, which begins after a header of 12 bytes.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        const A: [u8; 2] = [0, 1];
        let (mut labels, mut at) = (Vec::new(), 12);
        while let Some(length) = query.get(at).map(|length| usize::from(*length)).filter(|length| *length > 0) {
            labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
            at += 1 + length;
        }
        let (name, kind) = (labels.join("."), query.get(at + 1..at + 3)?);
        let mut answers = self.answers.lock();
        let known = answers.get_mut(&name);
        let code = if known.is_some() { 0x80 } else { 0x83 };
        let address = match known {
            Some(known) if kind == A => {
                self.lookups.lock().push(name);
                if known.len() > 1 { known.pop_front() } else { known.front().copied() }
            }
            _ => None,
        };
        let mut answer = query.get(..2)?.to_vec();
        answer.extend([0x81, code, 0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
        answer.extend(query.get(12..at + 5)?);
        if let Some(address) = address {
            // A pointer to the name, type A, class IN, a TTL of zero.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            answer.extend(address.octets());
        }
        Some(answer)
    }
}
