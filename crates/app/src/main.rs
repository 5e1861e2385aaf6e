//! The casement program: `serve` and other commands. Contains only wiring; the rules are in `casement-domain`.

mod app_runtime;
mod apps;
mod audit_export;
mod backup;
mod blob_store;
mod blobs_move;
mod browser_policy;
mod call_traces;
mod causes;
mod cluster_node;
mod cluster_supervisor;
mod config_file;
mod connections;
mod credential_providers;
mod credentials;
mod data_dir;
mod disk;
mod doctor;
mod documents;
mod egress;
mod engine_metrics;
mod engines;
mod extensions;
mod first_start;
mod fonts;
mod jobs;
mod keys;
mod local_waiters;
mod logins;
mod manual;
mod masked_log;
mod metrics_catalogue;
mod node_drain;
mod node_health;
mod profiles;
mod proxies;
mod replays;
mod secrets;
mod serve;
mod settings;
mod shared_secret;
mod short_path;
mod spare_space;
mod stop;
mod store;
mod system;
mod telemetry_destinations;
mod ticket_reports;
mod web_store;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

#[cfg(feature = "openapi")]
use casement_http::{declared_openapi as openapi, declared_operations_page as operations_page};
#[cfg(not(feature = "openapi"))]
use casement_http::{openapi, operations_page};
use casement_telemetry::traces::{self, RecordedTraces};
use causes::with_causes;
use masked_log::Masked;
use settings::{BlobsCommand, Command, CommandLine, LogFormat};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};
use zeroizing_alloc::ZeroAlloc;

/// Zeroes freed memory; HTTP and JSON buffers may have held secrets.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<std::alloc::System> = ZeroAlloc(std::alloc::System);

/// The timeout of blocking tasks when the process ends.
const RUNTIME_SHUTDOWN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

fn main() -> ExitCode {
    let command = match CommandLine::read() {
        Ok(CommandLine::Own(command)) => *command,
        Ok(CommandLine::Api(name, matches)) => return drive_server(&name, &matches),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "casement: {}", with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    // What sessions and the data directory get must not depend on the shell that starts the server.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // The agent creates a smaller runtime of its own, because an agent runs in every sandbox.
    if let Command::Agent { config } = &command {
        // The callers of the session can read this log.
        log_to("info", casement_agent::AgentLog::default, false);
        return casement_agent::run(config);
    }
    if matches!(command, Command::Inside) {
        log_to("info", std::io::stderr, false);
        return casement_runner::run_app_runner();
    }
    if let Command::Network { words } = &command {
        log_to("info", std::io::stderr, false);
        return casement_runner::prepare_network(words);
    }
    // Handles one request and logs nothing.
    if let Command::Keepass { file } = &command {
        return casement_vaults::read_keepass(file);
    }
    let traces = match &command {
        Command::Serve(settings) => {
            log_and_trace("info,actix_server=warn,tokio_postgres=warn", settings.log_format, settings.otlp_traces)
        }
        _ => log_and_trace("warn", LogFormat::Text, None),
    };
    // Runs before other threads exist, so that all threads leave the keyring: sandboxes inherit it, and must not see
    // the keys of the user who starts the server.
    if matches!(command, Command::Serve(_) | Command::Stop(_))
        && let Err(error) = casement_sandbox::leave_session_keyring()
    {
        let _ = writeln!(std::io::stderr(), "casement: cannot leave the session keyring: {error}");
        return ExitCode::FAILURE;
    }
    exit_code(on_runtime(run(command, traces)).map(|()| 0))
}

/// Runs a command that drives a server over its API.
fn drive_server(name: &str, matches: &clap::ArgMatches) -> ExitCode {
    log_and_trace("warn", LogFormat::Text, None);
    exit_code(on_runtime(async { casement_cli::run(name, matches, casement_http::openapi()).await }))
}

fn on_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(Box::pin(work));
    // A task that still blocks a thread, such as a database in recovery, can be abandoned safely.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    done
}

fn exit_code(done: anyhow::Result<u8>) -> ExitCode {
    match done {
        Ok(code) => code.into(),
        Err(error) if error.is::<casement_cli::ClosedOutput>() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "casement: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command, traces: Option<RecordedTraces>) -> anyhow::Result<()> {
    match command {
        Command::Serve(settings) => Box::pin(serve::run(*settings, traces)).await,
        Command::Keys(command) => keys::run(command).await,
        Command::Secrets(command) => secrets::run(command).await,
        Command::Blobs(BlobsCommand::Move(settings)) => Box::pin(blobs_move::run(settings)).await,
        Command::Doctor(settings) => doctor::run(settings).await,
        Command::Stop(settings) => stop::run(settings).await,
        Command::Drain(settings) => node_drain::run(settings).await,
        Command::Backup(settings) => Box::pin(backup::create(settings)).await,
        Command::Restore(settings) => Box::pin(backup::restore(settings)).await,
        Command::Openapi { operations, metrics, engines } => {
            let text = match (operations, metrics, engines) {
                (true, ..) => operations_page().to_string(),
                (_, true, _) => metrics_catalogue::page(),
                (.., true) => casement_domain::engine::table(),
                _ => openapi().to_string(),
            };
            casement_cli::write_out(text.as_bytes())
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut settings::commands(None)?, "casement", &mut script);
            casement_cli::write_out(&script)
        }
        Command::Man { all: Some(folder), .. } => manual::write_all(&folder),
        Command::Man { command, all: None } => {
            let mut page = Vec::new();
            manual::write(command.as_deref(), &mut page)?;
            casement_cli::write_out(&page)
        }
        Command::Agent { .. } | Command::Inside | Command::Network { .. } | Command::Keepass { .. } => {
            unreachable!("handled before the runtime was made")
        }
    }
}

/// Logs to standard error, so that standard output holds only a command's result. `CASEMENT_LOG` sets the level.
/// Records the traces of this share of the calls, if one is given.
fn log_and_trace(default: &str, format: LogFormat, ratio: Option<f64>) -> Option<RecordedTraces> {
    let (layer, traces) = ratio.map(traces::layer).unzip();
    let logs = match format {
        LogFormat::Text => log_layer(default, std::io::stderr, std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => json_log_layer(default).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(logs).init();
    traces
}

fn log_to<W>(default: &str, writer: W, colours: bool)
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::registry().with(log_layer(default, writer, colours)).init();
}

fn log_layer<S, W>(default: &str, writer: W, colours: bool) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(Masked(writer));
    // A failed log write must not panic: the default handler writes to standard error again, which panics if that is
    // closed or full.
    lines.log_internal_errors(false).with_filter(log_filter(default))
}

/// Logs one JSON object a line, with the fields of an event beside its time, level and message.
fn json_log_layer<S>(default: &str) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false);
    lines.with_writer(Masked(std::io::stderr)).log_internal_errors(false).with_filter(log_filter(default))
}

/// Returns what `CASEMENT_LOG` selects, or the default.
fn log_filter(default: &str) -> EnvFilter {
    let Some(selected) = std::env::var("CASEMENT_LOG").ok().filter(|text| !text.is_empty()) else {
        return EnvFilter::new(default);
    };
    EnvFilter::try_new(&selected).unwrap_or_else(|error| {
        let _ = writeln!(
            std::io::stderr(),
            "casement: CASEMENT_LOG: {error}; give a level as warn, info or debug, or levels of parts as casement=debug"
        );
        EnvFilter::new(default)
    })
}
