//! The first program of a sandbox in which a program is built or runs.

mod child;
mod forward;
mod lines;
mod load;
mod memory;
mod pack;
mod serve;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use tokio::net::UnixListener;

use crate::protocol::{CONFIG_PATH, Config};

/// Runs the inside with the configuration at [`CONFIG_PATH`] until it is told to end or nobody holds it.
///
/// The listening unix socket is inherited as descriptor 3, announced by `LISTEN_FDS=1` in the environment. Builds its own
/// single-threaded runtime, so it must not be called from within another.
#[must_use]
pub fn inside() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the inside of the sandbox could not begin");
            ExitCode::FAILURE
        }
    }
}

/// Prepares the network of a sandbox-to-be and becomes the command that makes it: an address, and that command. See
/// [`casement_sandbox::prepare_network`].
#[must_use]
pub fn network(words: &[OsString]) -> ExitCode {
    let address = words.split_first().and_then(|(address, command)| Some((address.to_str()?.parse().ok()?, command)));
    let Some((address, command)) = address else { return ExitCode::FAILURE };
    let error = casement_sandbox::prepare_network(address, command);
    tracing::error!(%error, "the sandbox could not begin");
    ExitCode::FAILURE
}

fn begin() -> io::Result<()> {
    casement_sandbox::leave_session_keyring()?;
    // What is run here has the same user: it shall neither read our memory nor follow our steps.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Before anything can open a descriptor of its own.
    let mut inherited = listenfd::ListenFd::from_env();
    let socket = inherited.take_unix_listener(0)?.ok_or_else(|| io::Error::other("there is no socket to serve"))?;
    socket.set_nonblocking(true)?;
    let config: Config = serde_json::from_slice(&std::fs::read(CONFIG_PATH)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    runtime.block_on(async {
        forward::start(&config).await?;
        serve::serve(UnixListener::from_std(socket)?, config.memory_bytes).await;
        Ok::<_, io::Error>(())
    })?;
    runtime.shutdown_background();
    Ok(())
}
