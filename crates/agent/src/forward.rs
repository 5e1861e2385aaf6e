//! The way to the web: Chromium's proxy on the sandbox's loopback, each connection copied to the unix socket that leads out.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

/// Connections open at once. Chromium itself stays below 256 to one proxy unless a policy raises it.
const MAX_CONNECTIONS: usize = 512;

/// Opens the forwarder's port. Done before Chromium starts, so that nothing else in the sandbox can take it.
pub(crate) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).await
}

/// Copies connections until the task is dropped.
///
/// The socket is connected anew each time: it vanishes while the server restarts and comes back under the same name. A
/// connection that finds nothing there is closed.
pub(crate) async fn serve(listener: TcpListener, egress: PathBuf) {
    let egress = Arc::new(egress);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((inside, _)) => {
                let egress = Arc::clone(&egress);
                tokio::spawn(async move {
                    copy(inside, &egress).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the forwarder could not accept");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn copy(mut inside: TcpStream, egress: &PathBuf) {
    if inside.set_nodelay(true).is_err() {
        return;
    }
    match UnixStream::connect(egress).await {
        // Either side may break off at any time: that ends the other and is no news.
        Ok(mut outside) => drop(copy_bidirectional(&mut inside, &mut outside).await),
        Err(error) => tracing::debug!(%error, "no way out"),
    }
}
