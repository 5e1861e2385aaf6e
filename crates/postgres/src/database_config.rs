//! The settings of the connections to a database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;

use crate::access::Access;
use crate::connect::Address;
use crate::tls::{BadTls, Parameters, Tls};

/// Server settings of each connection, before those of the URL, which count more: timeouts, in milliseconds, that end
/// abandoned statements and transactions. The locks of a transaction whose node was stopped delay the other nodes.
const TIMEOUTS: &str = "-c statement_timeout=10000 -c idle_in_transaction_session_timeout=3000";
/// Settings of connections whose statements may take long, after those of the URL.
const NO_TIMEOUTS: &str = "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0";
/// Settings without which statements would mean something else, after those of the URL. The last one means nothing to
/// the server: it shows that settings arrive.
const FIXED: &str = "-c timezone=UTC -c default_transaction_isolation=read\\ committed -c casement.options=on";

/// The address of the database and the maximum number of connections to it.
#[derive(Clone)]
pub struct DatabaseConfig {
    address: Address,
    /// The server settings of the URL.
    given_options: String,
    connections: usize,
}

/// The connection string can't be used. The messages do not repeat it: it may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum BadDatabaseUrl {
    /// The URL is not a PostgreSQL connection string.
    #[error("the database URL is not a PostgreSQL connection string: {0}")]
    Unreadable(#[source] tokio_postgres::Error),
    /// `target_session_attrs` accepts servers that cannot write.
    #[error("target_session_attrs of the database URL must be read-write, primary or any")]
    Access,
    /// The numbers of hosts, addresses and ports differ.
    #[error(
        "the database URL has {hosts} hosts, {addresses} addresses in hostaddr and {ports} ports: give one of each for each \
         host, or one port"
    )]
    Counts {
        /// The number of hosts.
        hosts: usize,
        /// The number of addresses.
        addresses: usize,
        /// The number of ports.
        ports: usize,
    },
    /// Its parameters that concern TLS can't be used.
    #[error(transparent)]
    Tls(#[from] BadTls),
}

impl DatabaseConfig {
    /// The default maximum number of connections of a node. The private cluster allows 100; LISTEN and migrations need
    /// one more each.
    pub const DEFAULT_CONNECTIONS: usize = 16;

    /// Reads a connection string: a URL (`postgresql://user@host/db`, `postgresql:///db?host=/directory`) or
    /// `key=value` pairs. Reads the files with certificates that it names.
    ///
    /// # Errors
    /// [`BadDatabaseUrl`].
    pub fn parse(url: &str) -> Result<Self, BadDatabaseUrl> {
        let (rest, parameters) = Parameters::take_from(url)?;
        let (rest, access) = Access::take_from(&rest).ok_or(BadDatabaseUrl::Access)?;
        let mut config = Config::from_str(&rest).map_err(BadDatabaseUrl::Unreadable)?;
        if config.get_hosts().is_empty() {
            // The driver takes the name for certificates from the hosts alone.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        check_counts(&config)?;
        let tls = Tls::new(parameters, &config)?;
        config.ssl_mode(tls.driver_mode()).application_name("casement");
        config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(Duration::from_secs(15));
        let given_options = config.get_options().unwrap_or_default().trim().to_owned();
        config.options(format!("{TIMEOUTS} {given_options} {FIXED}"));
        let address = Address { config, tls, access };
        Ok(Self { address, given_options, connections: Self::DEFAULT_CONNECTIONS })
    }

    /// Sets the maximum number of connections, at least 1.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections
    }

    /// The address for connections outside of the pool: LISTEN, migrations.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The address for connections that run a few short statements again and again: each is planned once, without its
    /// values. Planning one for its values takes longer than running it, and PostgreSQL does so five times before it
    /// considers a generic plan.
    pub(crate) fn planned_once(&self) -> Address {
        let given = self.address.config.get_options().unwrap_or_default();
        self.with_options(&format!("{given} -c plan_cache_mode=force_generic_plan"))
    }

    /// The address for connections whose statements may take long: without timeouts of statements, whatever the URL says.
    pub(crate) fn unhurried(&self) -> Address {
        self.with_options(&format!("{} {NO_TIMEOUTS} {FIXED}", self.given_options))
    }

    /// Whether the URL has server settings of its own.
    pub(crate) fn has_given_options(&self) -> bool {
        !self.given_options.is_empty()
    }

    fn with_options(&self, options: &str) -> Address {
        let mut address = self.address.clone();
        address.config.options(options.trim_start());
        address
    }
}

/// Refuses addresses and ports that belong to no host.
fn check_counts(config: &Config) -> Result<(), BadDatabaseUrl> {
    let [hosts, addresses, ports] = [config.get_hosts().len(), config.get_hostaddrs().len(), config.get_ports().len()];
    let fit = (addresses == 0 || addresses == hosts) && (ports <= 1 || ports == hosts);
    if fit { Ok(()) } else { Err(BadDatabaseUrl::Counts { hosts, addresses, ports }) }
}

impl fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = (self.address.config.get_hosts(), self.address.config.get_dbname());
        f.debug_struct("DatabaseConfig").field("to", &to).field("connections", &self.connections).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::SslMode;

    use super::{BadDatabaseUrl, BadTls, DatabaseConfig};

    fn mode(url: &str) -> Result<SslMode, BadDatabaseUrl> {
        Ok(DatabaseConfig::parse(url)?.address.config.get_ssl_mode())
    }

    #[test]
    fn a_password_shows_nowhere() {
        let config = DatabaseConfig::parse("postgresql://me:hunter2@db.internal/casement").expect("a URL");
        assert!(!format!("{config:?}").contains("hunter2"));
        for bad in ["me:hunter2@db.internal:port/x", "me:hunter2@db/x?sslmode=no", "me:hunter2@db/x?sslcrl=/x"] {
            let bad = DatabaseConfig::parse(&format!("postgresql://{bad}")).expect_err(bad);
            assert!(!format!("{bad} {bad:?}").contains("hunter2"));
        }
    }

    #[test]
    fn settings_of_the_url_hold_for_every_connection_between_defaults_and_what_must_be() {
        let url = "postgresql://db/x?options=-c%20search_path%3Down%20-c%20statement_timeout%3D5000";
        let config = DatabaseConfig::parse(url).expect("a URL");
        for address in [config.address().clone(), config.planned_once(), config.unhurried()] {
            let options = address.config.get_options().unwrap_or_default();
            let at = |setting: &str| options.rfind(setting).unwrap_or_else(|| panic!("{setting}: {options}"));
            assert!(at("search_path=own") < at("timezone=UTC"), "{options}");
            assert!(options.contains(r"default_transaction_isolation=read\ committed"), "{options}");
        }
        let hurried = config.address().config.get_options().unwrap_or_default();
        assert!(hurried.find("statement_timeout=10000") < hurried.find("statement_timeout=5000"), "{hurried}");
        let unhurried = config.unhurried();
        let unhurried = unhurried.config.get_options().unwrap_or_default();
        assert!(unhurried.find("statement_timeout=5000") < unhurried.find("statement_timeout=0"), "{unhurried}");
    }

    #[test]
    fn hosts_have_an_address_and_a_port_each_or_share_a_port() {
        for good in ["host=a,b", "host=a,b port=1", "host=a,b port=1,2 hostaddr=10.0.0.1,10.0.0.2", "hostaddr=::1"] {
            assert!(DatabaseConfig::parse(good).is_ok(), "{good}");
        }
        for bad in ["host=a,b port=1,2,3", "host=a,b hostaddr=10.0.0.1", "host=a target_session_attrs=standby"] {
            assert!(DatabaseConfig::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_sslmode_tls_is_preferred_for_hosts_elsewhere_only() -> Result<(), BadDatabaseUrl> {
        for url in [
            "postgresql:///x?host=/run/postgresql",
            "postgresql://localhost/x",
            "postgresql://127.0.0.1/x",
            "postgresql://[::1]/x",
            "host=/run/postgresql,localhost",
            "host=db.internal hostaddr=127.0.0.1",
        ] {
            assert_eq!(mode(url)?, SslMode::Disable, "{url}");
        }
        for url in ["postgresql://db.internal/x", "postgresql://10.0.0.1,127.0.0.1/x", "hostaddr=10.0.0.1"] {
            assert_eq!(mode(url)?, SslMode::Prefer, "{url}");
        }
        Ok(())
    }

    #[test]
    fn sslmode_holds_for_any_host_and_means_nothing_for_sockets() -> Result<(), BadDatabaseUrl> {
        assert_eq!(mode("postgresql://db/x?sslmode=disable")?, SslMode::Disable);
        assert_eq!(mode("postgresql://localhost/x?sslmode=prefer")?, SslMode::Prefer);
        assert_eq!(mode("postgresql://localhost/x?sslmode=require&channel_binding=require")?, SslMode::Require);
        assert_eq!(mode("postgresql:///x?host=/run/postgresql&sslmode=verify-full")?, SslMode::Disable);
        let some = mode("host=/run/postgresql,db sslmode=require");
        assert!(matches!(some, Err(BadDatabaseUrl::Tls(BadTls::SomeSockets))));
        Ok(())
    }

    #[test]
    fn a_parameter_without_effect_is_refused_with_the_mode_that_it_needs() {
        for (parameters, needed) in [
            ("sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("sslmode=prefer&sslrootcert=/ca.pem", "sslmode=verify-full"),
            ("sslmode=require&sslrootcert=system", "sslmode=verify-full"),
            ("sslmode=disable&channel_binding=require", "sslmode=require"),
            ("sslcert=/c.pem&sslkey=/k.pem", "sslmode=require"),
            ("sslmode=require&sslkey=/k.pem", "give both"),
            ("sslmode=verify-ca", "needs sslrootcert"),
        ] {
            let refused = mode(&format!("postgresql://db.internal/x?{parameters}")).expect_err(parameters);
            assert!(refused.to_string().contains(needed), "{parameters}: {refused}");
        }
    }

    #[test]
    fn a_missing_file_is_named_with_its_parameter() {
        let refused =
            mode("postgresql://db.internal/x?sslmode=verify-full&sslrootcert=/no/ca.pem").expect_err("no file");
        assert!(
            refused.to_string().starts_with("sslrootcert of the database URL: /no/ca.pem: No such file"),
            "{refused}"
        );
    }
}
