//! Tests of the sockets between a sandbox and the host.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use casement_sandbox::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Place, config, spec, within};

/// Returns a script that answers each connection to descriptor `fd` with one line.
fn answering(fd: u32, answer: &str) -> String {
    format!(
        "perl -e 'use Socket; open S, qq(+<&={fd}); while (accept(C, S)) {{ syswrite C, qq({answer}\\n); close C }}' &"
    )
}

async fn ask(stream: tokio::net::UnixStream) -> anyhow::Result<String> {
    let (mut stream, mut answer) = (stream, String::new());
    within(Duration::from_secs(60), stream.read_to_string(&mut answer)).await??;
    Ok(answer)
}

#[tokio::test]
async fn sockets_and_further_listeners_are_descriptors_from_3_on() -> anyhow::Result<()> {
    let place = Place::new()?;
    let further = place.dir.path().join("further");
    let script = [answering(3, "three"), answering(4, "four"), answering(5, "five"), "wait".to_owned()].join("\n");
    let mut spec = place.script("a", &script);
    spec.sockets = 2;
    spec.listeners.push(OwnedFd::from(UnixListener::bind(&further)?));
    let sandbox = place.host.start(spec).await?;
    assert_eq!(ask(sandbox.connect(0).await?).await?, "three\n");
    assert_eq!(ask(sandbox.connect(1).await?).await?, "four\n");
    assert_eq!(ask(tokio::net::UnixStream::connect(further).await?).await?, "five\n");
    assert!(sandbox.connect(2).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_directory_with_a_very_long_name_works() -> anyhow::Result<()> {
    let place = Place::new()?;
    let root = place.dir.path().join("a".repeat(100)).join("b".repeat(100));
    let host = Host::new(config(&root))?;
    let mut spec = spec(place.dir.path(), "a", &format!("{} wait", answering(3, "three")));
    spec.sockets = 1;
    let sandbox = host.start(spec).await?;
    assert!(sandbox.listener_path(0).as_os_str().len() > 200);
    assert_eq!(ask(sandbox.connect(0).await?).await?, "three\n");
    host.end("a").await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_to_an_ended_sandbox_is_refused() -> anyhow::Result<()> {
    let place = Place::new()?;
    let mut spec = place.script("a", "true");
    spec.sockets = 1;
    let sandbox = place.host.start(spec).await?;
    within(Duration::from_secs(60), sandbox.exited()).await??;
    // A process that another test starts at this moment inherits the socket until it executes its program.
    let refused = async {
        while sandbox.connect(0).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(Duration::from_secs(60), refused).await
}

/// A restarted server creates its sockets again. The sandbox has the directory mounted, not the sockets.
#[tokio::test]
async fn the_egress_works_again_after_its_socket_was_recreated() -> anyhow::Result<()> {
    let place = Place::new()?;
    let script = "use Socket; open L, qq(+<&=3); while (accept(C, L)) { socket(S, AF_UNIX, SOCK_STREAM, 0); \
        my $ok = connect(S, sockaddr_un(qq(/run/casement/egress/proxy.sock))); \
        syswrite C, $ok ? scalar(<S>) : qq(no: $!\\n); close C; close S }";
    let mut spec = place.script("a", &format!("exec perl -e '{script}'"));
    spec.sockets = 1;
    let egress = spec.egress_dir.clone();
    let sandbox = place.host.start(spec).await?;
    assert_eq!(ask(sandbox.connect(0).await?).await?, "no: No such file or directory\n");
    for life in ["first\n", "second\n"] {
        let path = egress.join("proxy.sock");
        std::fs::remove_file(&path).ok();
        let listener = tokio::net::UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        let serve = async { listener.accept().await?.0.write_all(life.as_bytes()).await };
        let (served, answer) = tokio::join!(within(Duration::from_secs(60), serve), ask(sandbox.connect(0).await?));
        served??;
        assert_eq!(answer?, life);
    }
    Ok(())
}

/// As root, every other user of the host is refused access to the egress of a sandbox.
#[tokio::test]
async fn another_user_cannot_use_the_egress_of_a_sandbox() -> anyhow::Result<()> {
    let place = Place::new()?;
    let spec = place.script("a", "exec sleep 1000");
    let egress = spec.egress_dir.clone();
    let sandbox = place.host.start(spec).await?;
    let mode = std::fs::metadata(&egress)?.permissions().mode() & 0o777;
    assert_eq!(mode, if sandbox.host_uid.is_some() { 0o710 } else { 0o700 });
    assert!(UnixStream::connect(egress.join("none")).is_err());
    Ok(())
}
