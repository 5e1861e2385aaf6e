//! Test proxies: scripted ones, and those of Debian's packages.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU16, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use casement_egress::{Proxy, ProxyProtocol};
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::TcpStream,
};

use super::support::{Origin, has_more, header, read_head, until};

const BASIC: &str = "Basic bWU6cDpALyU=";

/// A proxy of either protocol that requires `me` and `p:@/%` and connects every request to one address.
pub(crate) struct TestProxy {
    pub(crate) server: Origin,
    requests: Arc<Mutex<Vec<String>>>,
    pub(crate) tunnels: Arc<AtomicUsize>,
}

impl TestProxy {
    pub(crate) async fn http(to: SocketAddr) -> Self {
        let (requests, tunnels) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (heads, count) = (requests.clone(), tunnels.clone());
        let server = Origin::start(move |mut client| {
            let (heads, count) = (heads.clone(), count.clone());
            async move {
                let head = read_head(&mut client).await;
                let line = head.lines().next().unwrap().to_owned();
                heads.lock().unwrap().push(line.clone());
                if header(&head, "proxy-authorization") != Some(BASIC) {
                    let refusal =
                        b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n";
                    client.get_mut().write_all(refusal).await.unwrap();
                    return;
                }
                if line.contains("nowhere.example") || line.contains(".invalid") {
                    client.get_mut().write_all(b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                    return;
                }
                let mut origin = TcpStream::connect(to).await.unwrap();
                if line.starts_with("CONNECT ") {
                    count.fetch_add(1, SeqCst);
                    client.get_mut().write_all(b"HTTP/1.1 200 Yes\r\n\r\n").await.unwrap();
                } else {
                    origin.write_all(head.as_bytes()).await.unwrap();
                }
                copy_bidirectional(&mut client, &mut origin).await.ok();
            }
        })
        .await;
        Self { server, requests, tunnels }
    }

    pub(crate) async fn socks(to: SocketAddr) -> Self {
        let (requests, tunnels) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (names, count) = (requests.clone(), tunnels.clone());
        let server = Origin::start(move |mut client| {
            let (names, count) = (names.clone(), count.clone());
            async move {
                let methods = usize::from(bytes(&mut client, 2).await[1]);
                bytes(&mut client, methods).await;
                client.write_all(&[5, 2]).await.unwrap();
                let length = usize::from(bytes(&mut client, 2).await[1]);
                let name = bytes(&mut client, length).await;
                let length = usize::from(bytes(&mut client, 1).await[0]);
                let good = (name, bytes(&mut client, length).await) == (b"me".to_vec(), b"p:@/%".to_vec());
                client.write_all(&[1, u8::from(!good)]).await.unwrap();
                if !good {
                    return;
                }
                let kind = bytes(&mut client, 4).await[3];
                let length = if kind == 3 { usize::from(bytes(&mut client, 1).await[0]) } else { 4 };
                let name = String::from_utf8_lossy(&bytes(&mut client, length).await).into_owned();
                bytes(&mut client, 2).await;
                names.lock().unwrap().push(name.clone());
                let status = if name == "nowhere.example" || name.ends_with(".invalid") { 4 } else { 0 };
                client.write_all(&[5, status, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
                if status == 0 {
                    count.fetch_add(1, SeqCst);
                    let mut origin = TcpStream::connect(to).await.unwrap();
                    copy_bidirectional(&mut client, &mut origin).await.ok();
                }
            }
        })
        .await;
        Self { server, requests, tunnels }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A server that sends bytes of no proxy protocol.
pub(crate) async fn garbage_server() -> Origin {
    Origin::start(|mut client| async move {
        client.write_all(b"\x00\x01 nonsense\r\n\r\n").await.unwrap();
        // Until the peer closes.
        client.read_to_end(&mut Vec::new()).await.ok();
    })
    .await
}

/// A server that reads and closes without an answer.
pub(crate) async fn silent_close_server() -> Origin {
    Origin::start(|mut client| async move {
        has_more(&mut client).await;
    })
    .await
}

/// A server that reads and resets the connection.
pub(crate) fn resetting_server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Closing with unread data makes the kernel send a reset.
            std::io::Read::read(&mut &client, &mut [0; 1]).ok();
        }
    });
    address
}

async fn bytes(client: &mut BufReader<TcpStream>, length: usize) -> Vec<u8> {
    let mut found = vec![0; length];
    client.read_exact(&mut found).await.unwrap();
    found
}

pub(crate) fn proxy(protocol: ProxyProtocol, at: SocketAddr, password: &str, bypass: &[&str]) -> Arc<Proxy> {
    let credentials = Some(("me".to_owned(), SecretString::from(password)));
    let bypass: Vec<_> = bypass.iter().map(ToString::to_string).collect();
    Arc::new(Proxy::new(protocol, (&at.ip().to_string(), at.port()), credentials, &bypass).unwrap())
}

pub(crate) async fn both(to: SocketAddr) -> [(ProxyProtocol, TestProxy); 2] {
    [(ProxyProtocol::Http, TestProxy::http(to).await), (ProxyProtocol::Socks5, TestProxy::socks(to).await)]
}

/// A proxy of a Debian package, on a separate loopback address, with its own hosts file: `there.example` is this
/// machine. Ends with the test, even if the test is killed.
pub(crate) struct RealProxy {
    pub(crate) address: SocketAddr,
    child: Child,
    _directory: TempDir,
}

/// The hash of `p:@/%`, in the format of `/etc/shadow`.
const HASH: &str = "$6$casement$3na4OcLOC8SC992YHg.GoII4z6zWHmjtlrk/gWowhyY.kf8Z2cLeJzUHwR0wN5/hsoxu7U.gayO4UAFv06O38/";
/// The shell is the first process of its pid namespace: when it ends, everything in the namespace ends.
const IN_OWN_NAMESPACE: &str = r#"
cd "$0" && for file in hosts passwd shadow; do mount --bind $file /etc/$file || exit 1; done
"$@" & wait"#;

impl RealProxy {
    /// An HTTP proxy that requires `me` and the given password, or nothing.
    pub(crate) async fn tinyproxy(password: Option<&str>) -> Self {
        let password = password.map(|word| format!("BasicAuth me {word}\n")).unwrap_or_default();
        let config = |at: SocketAddr| {
            format!("Listen {}\nPort {}\nTimeout 60\nMaxClients 20\nLogLevel Error\n{password}", at.ip(), at.port())
        };
        Self::start(config, &["tinyproxy", "-d", "-c", "config"]).await
    }

    /// A SOCKS proxy that requires `me` and `p:@/%`, or nothing.
    pub(crate) async fn dante(with_password: bool) -> Self {
        let method = if with_password { "username" } else { "none" };
        let config = |at: SocketAddr| {
            format!(
                "logoutput: stderr\ninternal: {} port = {}\nexternal: 127.0.0.1\nsocksmethod: {method}\nclientmethod: none
user.privileged: root\nuser.unprivileged: nobody
client pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}\nsocks pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}\n",
                at.ip(),
                at.port()
            )
        };
        Self::start(config, &["/usr/sbin/danted", "-f", "config"]).await
    }

    async fn start(config: impl Fn(SocketAddr) -> String, program: &[&str]) -> Self {
        static PORT: AtomicU16 = AtomicU16::new(20_000);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        // Neither program can report a port that it chose, so the address is unique to this process.
        let address = SocketAddr::from(([127, 64 + high, middle, low], PORT.fetch_add(1, Relaxed)));
        let directory = tempfile::tempdir().unwrap();
        let user = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\nme:x:4000:4000::/:/bin/false\n";
        for (name, text) in [
            ("config", config(address)),
            ("hosts", "127.0.0.1 localhost there.example\n".to_owned()),
            ("passwd", user.to_owned()),
            ("shadow", format!("root:*:19000:0:99999:7:::\nme:{HASH}:19000:0:99999:7:::\n")),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", IN_OWN_NAMESPACE])
            .arg(directory.path())
            .args(program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        until(&format!("{program:?} listens on {address}"), || {
            let log = || fs::read_to_string(directory.path().join("log")).unwrap_or_default();
            assert!(child.try_wait().unwrap().is_none(), "{program:?} ended at once; is it installed? {}", log());
            std::net::TcpStream::connect(address).is_ok()
        })
        .await;
        Self { address, child, _directory: directory }
    }
}

impl Drop for RealProxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
