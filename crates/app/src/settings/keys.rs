//! `casement keys` on the database of this host, which works without a server and without a key.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, FromArgMatches as _};

use super::Store;

/// The name of the command, which drives a server unless it names a data directory or a database.
pub(super) const NAME: &str = "keys";

/// The fields of the operations behind the commands.
const KEY_NAME: &str = "field:name";
const PROJECT: &str = "field:project_id";
const DAYS: &str = "field:days_to_expire";
const EXPIRES_AT: &str = "field:expires_at";
const POLICY: &str = "field:policy";
const ID: &str = "path:id";

/// A command on the API keys in the database.
#[derive(Debug)]
pub(crate) enum KeysCommand {
    /// Creates a key and prints it once.
    Create {
        store: Store,
        /// The label of the key.
        name: String,
        /// The only project that the key opens, by id or name.
        project: Option<String>,
        /// The number of days until the key expires, 1 to 3650.
        days: Option<i64>,
        /// The time at which the key expires, in RFC 3339.
        expires_at: Option<String>,
        /// What the key allows, as JSON; `@FILE`: the content of a file.
        policy: Option<String>,
    },
    /// Prints the keys, masked.
    List { store: Store },
    /// Revokes keys.
    Revoke {
        store: Store,
        /// The ids of the keys, the first part after `csk_`.
        ids: Vec<String>,
    },
}

/// Adds the flags of the database to those that name a server.
pub(super) fn with_database(keys: clap::Command) -> clap::Command {
    let heading = "This host's database, instead of a server";
    let add = |command: clap::Command| {
        let about = command.get_about().cloned().unwrap_or_default();
        Store::augment_args(command.next_help_heading(heading)).about(about)
    };
    let create = |command: clap::Command| {
        add(command)
            .mut_arg(PROJECT, |project| project.visible_alias("project"))
            .mut_arg(DAYS, |days| days.visible_alias("days"))
    };
    keys.mut_subcommand("create", create).mut_subcommand("list", add).mut_subcommand("revoke", add)
}

impl KeysCommand {
    /// Returns the command; `None` if it names neither a data directory nor a database.
    pub(super) fn from_matches(matches: &ArgMatches) -> Result<Option<Self>, clap::Error> {
        let Some((verb, matches)) = matches.subcommand() else { return Ok(None) };
        // The place of the database may also come from the configuration file.
        let has = |id: &str| matches.try_get_raw(id).is_ok_and(|values| values.is_some());
        let names_server = ["url", "key", "key_file", "context"]
            .iter()
            .any(|id| has(id) && matches.value_source(id) == Some(ValueSource::CommandLine));
        if names_server || (!has("dir") && !has("database_url")) {
            return Ok(None);
        }
        let store = Store::from_arg_matches(matches)?;
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        Ok(match verb {
            "create" => {
                let days = text(DAYS).and_then(|days| days.parse().ok());
                Some(Self::Create {
                    store,
                    name: text(KEY_NAME).unwrap_or_default(),
                    project: text(PROJECT),
                    days,
                    expires_at: text(EXPIRES_AT),
                    policy: text(POLICY),
                })
            }
            "list" => Some(Self::List { store }),
            "revoke" => {
                Some(Self::Revoke { store, ids: matches.get_many(ID).into_iter().flatten().cloned().collect() })
            }
            _ => None,
        })
    }
}
