//! The settings of the program: flags, variables of the same name, or a file.

mod serve;
mod values;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use secrecy::SecretString;

pub(crate) use self::serve::{AppSettings, BuildSettings, LimitSettings, ServeSettings, TelemetryUrls};
use crate::{config_file, remote};

/// Real browsers for other programs.
#[derive(Debug, Parser)]
#[command(name = "casement", version, about, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The file with settings that are not given as flags or variables [default: /etc/casement/casement.toml as root,
    /// else $XDG_CONFIG_HOME/casement/casement.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE", env = "CASEMENT_CONFIG")]
    config: Option<PathBuf>,
}

impl Arguments {
    /// Reads the settings of this process. Ends it if the command line is invalid or asks for help.
    ///
    /// # Errors
    /// If the configuration file is invalid.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let alone = Self::parse();
        // These commands need no configuration; the agent does not run on the host.
        let needs_none = matches!(
            alone.command,
            Command::Agent { .. }
                | Command::Inside
                | Command::Network { .. }
                | Command::Openapi { .. }
                | Command::Man { .. }
        );
        let Some(path) = (if needs_none { None } else { config_file::find(alone.config.clone()) }) else {
            return Ok(alone);
        };
        let matches = config_file::apply(&path, Self::command())?.get_matches();
        Ok(Self::from_arg_matches(&matches)?)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(Box<ServeSettings>),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Manage the key under which secrets are sealed
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Check whether this host meets Casement's requirements, and print remedies
    Doctor(DoctorSettings),
    /// Stop the server; sessions continue and are adopted by its next start
    Stop(StopSettings),
    /// Deploy an app, and show its build
    Deploy(remote::DeployCommand),
    /// Run an action of an app, and print its result
    Invoke(remote::InvokeCommand),
    /// Show the log of a build or an invocation, to its end
    Logs(remote::LogsCommand),
    /// Print the OpenAPI document
    Openapi {
        /// Print the table of operations instead, as Markdown
        #[arg(long)]
        operations: bool,
    },
    /// Print the manual page of the program, or of one of its commands
    #[command(hide = true)]
    Man {
        /// The command
        command: Option<String>,
    },
    /// The first program in a session's sandbox
    #[command(hide = true)]
    Agent {
        /// The configuration file
        #[arg(default_value = casement_agent_protocol::CONFIG_PATH)]
        config: PathBuf,
    },
    /// The first program in the sandbox of a deployed app
    #[command(hide = true)]
    Inside,
    /// Prepares the network of the sandbox of a deployed app
    #[command(hide = true)]
    Network {
        /// The address of the sandbox, and the command that creates it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Answers one request about a KeePass database
    #[command(hide = true)]
    Keepass {
        /// The database
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorSettings {
    #[command(flatten)]
    pub(crate) store: Store,
    /// The folder of the script runner [default: beside the program]
    #[arg(long, value_name = "DIR", env = "CASEMENT_SCRIPT_RUNNER")]
    pub(crate) script_runner: Option<PathBuf>,
}

/// The location of this installation's data.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataDir {
    /// Key, private database, sandboxes [default: /var/lib/casement as root, else $XDG_DATA_HOME/casement]
    #[arg(long = "data-dir", value_name = "DIR", env = "CASEMENT_DATA_DIR")]
    dir: Option<PathBuf>,
}

impl DataDir {
    /// Returns the directory as an absolute path.
    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/casement"),
            None => {
                let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
                variable("XDG_DATA_HOME")
                    .or_else(|| variable("HOME").map(|home| home.join(".local/share")))
                    .ok_or_else(|| anyhow::anyhow!("neither XDG_DATA_HOME nor HOME is set: give --data-dir"))?
                    .join("casement")
            }
        };
        Ok(std::path::absolute(dir)?)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StopSettings {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// End the running sessions and invocations too
    #[arg(long)]
    pub(crate) end_sessions: bool,
}

/// The database settings of commands beside the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Store {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// The URL of a PostgreSQL server [default: the private one in the data directory]
    #[arg(long, value_name = "URL", env = "CASEMENT_DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print it once
    Create {
        #[command(flatten)]
        store: Store,
        /// The label of the key
        #[arg(long, value_name = "LABEL")]
        name: String,
        /// The only project that the key allows, by id or name
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
        /// The number of days until the key expires, 1 to 3650
        #[arg(long, value_name = "N")]
        days: Option<i64>,
    },
    /// Print the keys, masked
    List {
        #[command(flatten)]
        store: Store,
    },
    /// Revoke a key
    Revoke {
        #[command(flatten)]
        store: Store,
        /// The key's id, the first part after csk_
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Seal everything under a new key; the server may keep running
    Rotate {
        #[command(flatten)]
        store: Store,
        /// The keys as for `casement serve`: no key is created then, and everything is sealed under the first one
        #[arg(long, value_name = "KEY", env = "CASEMENT_MASTER_KEY", hide_env_values = true)]
        master_key: Option<SecretString>,
    },
}
