//! The app runner: the first process in the sandbox of a build or an app.

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

/// Runs the app runner with the configuration at [`CONFIG_PATH`] until no server holds its sandbox and no call needs
/// it.
///
/// The listening unix socket is inherited as descriptor 3, announced by `LISTEN_FDS=1` in the environment. Builds its
/// own single-threaded runtime, so it must not be called within another.
#[must_use]
pub fn run_app_runner() -> ExitCode {
    match begin() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the app runner cannot start");
            ExitCode::FAILURE
        }
    }
}

/// Prepares the network of a new sandbox and then executes the command that creates the sandbox. `arguments` are a
/// setup and the command. See [`casement_sandbox::prepare_network`].
#[must_use]
pub fn prepare_network(arguments: &[OsString]) -> ExitCode {
    let setup = arguments.split_first().and_then(|(setup, command)| Some((setup.to_str()?.parse().ok()?, command)));
    let Some((setup, command)) = setup else { return ExitCode::FAILURE };
    let error = casement_sandbox::prepare_network(setup, command);
    tracing::error!(%error, "the sandbox cannot start");
    ExitCode::FAILURE
}

fn begin() -> io::Result<()> {
    casement_sandbox::leave_session_keyring()?;
    // Code of callers runs as the same user and must not read the memory of this process or trace it.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Must run before anything opens a descriptor.
    let mut inherited = listenfd::ListenFd::from_env();
    let socket =
        inherited.take_unix_listener(0)?.ok_or_else(|| io::Error::other("no listening socket was inherited"))?;
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
