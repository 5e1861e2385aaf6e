//! The parameters of a connection string that concern TLS. The driver knows few of them, so they are taken out before
//! it reads the string.

use std::path::PathBuf;

use super::error::BadTls;
use crate::connection_string;

/// What `sslmode` demands, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// No TLS.
    Disable,
    /// TLS if it works, otherwise none.
    Prefer,
    /// TLS with any certificate.
    Require,
    /// A certificate of a known authority, for any name.
    VerifyCa,
    /// A certificate of a known authority for the name of the host.
    VerifyFull,
}

impl Mode {
    const ALL: [Self; 5] = [Self::Disable, Self::Prefer, Self::Require, Self::VerifyCa, Self::VerifyFull];

    /// The value of `sslmode`, as libpq knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    fn parse(text: &str) -> Result<Self, BadTls> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(BadTls::Mode)
    }
}

/// The authorities whose certificates are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Those of this system.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

/// The parameters, each as the string has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) mode: Option<Mode>,
    pub(crate) roots: Option<Roots>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The parameters that are read here.
const KNOWN: [&str; 5] = ["sslmode", "sslrootcert", "sslcert", "sslkey", "sslnegotiation"];
/// libpq's other parameters about the protection of a connection.
const UNSUPPORTED: [&str; 14] = [
    "sslcrl",
    "sslcrldir",
    "sslpassword",
    "sslcertmode",
    "sslcompression",
    "sslsni",
    "sslkeylogfile",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "requiressl",
    "requirepeer",
    "require_auth",
    "gssencmode",
    "krbsrvname",
];

impl Parameters {
    /// Takes the parameters out of a connection string. Returns the rest of the string, for the driver. A string that
    /// cannot be read is returned as it is: the driver reports why.
    ///
    /// # Errors
    /// [`BadTls`] for a value or a parameter that is not supported.
    pub(crate) fn take_from(connection: &str) -> Result<(String, Self), BadTls> {
        let (rest, taken) = connection_string::take(connection, is_taken);
        let mut parameters = Self::default();
        for (name, value) in taken {
            parameters.set(&name, &value)?;
        }
        Ok((rest, parameters))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), BadTls> {
        if let Some(unsupported) = UNSUPPORTED.into_iter().find(|unsupported| *unsupported == name) {
            return Err(BadTls::Unsupported(unsupported));
        }
        // As in libpq, an empty value is none. A path is absolute, since programs that are given it run elsewhere.
        let path = || Some(value).filter(|value| !value.is_empty()).and_then(|value| std::path::absolute(value).ok());
        match name {
            "sslmode" => self.mode = Some(Mode::parse(value)?),
            "sslrootcert" if value == "system" => self.roots = Some(Roots::System),
            "sslrootcert" => self.roots = path().map(Roots::File),
            "sslcert" => self.certificate = path(),
            "sslkey" => self.key = path(),
            _ if value == "postgres" => {}
            _ => return Err(BadTls::Negotiation),
        }
        Ok(())
    }
}

fn is_taken(name: &str) -> bool {
    KNOWN.contains(&name) || UNSUPPORTED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_from(text: &str) -> (String, Parameters) {
        Parameters::take_from(text).expect("parameters")
    }

    #[test]
    fn parameters_of_tls_are_taken_out_of_a_url_and_all_others_stay() {
        let (rest, parameters) = taken_from(
            "postgresql://me:a?b=c@db.internal:5433/x?connect_timeout=3&sslmode=verify-full&sslrootcert=%2Fca%20s.pem&options=-c%20a%3Db",
        );
        assert_eq!(rest, "postgresql://me:a?b=c@db.internal:5433/x?connect_timeout=3&options=-c%20a%3Db");
        assert_eq!(parameters.mode, Some(Mode::VerifyFull));
        assert_eq!(parameters.roots, Some(Roots::File("/ca s.pem".into())));
        let (rest, parameters) = taken_from("postgres://db/x?sslmode=require&sslcert=/c&sslkey=/k");
        assert_eq!(rest, "postgres://db/x");
        assert_eq!((parameters.certificate, parameters.key), (Some("/c".into()), Some("/k".into())));
    }

    #[test]
    fn parameters_of_tls_are_taken_out_of_pairs_and_all_others_stay() {
        let (rest, parameters) =
            taken_from(r"host=db password='it\'s sslmode=disable' sslmode = verify-ca sslrootcert='/a b' dbname=x");
        assert_eq!(rest, r"host=db  password='it\'s sslmode=disable' dbname=x ");
        assert_eq!(parameters.mode, Some(Mode::VerifyCa));
        assert_eq!(parameters.roots, Some(Roots::File("/a b".into())));
        assert_eq!(taken_from("host=db sslmode=prefer").1.mode, Some(Mode::Prefer));
    }

    #[test]
    fn unreadable_strings_are_left_to_the_driver() {
        for text in ["", "host", "host=", "password='open sslmode=require", "postgresql://db?sslmode", "=x"] {
            let (rest, parameters) = taken_from(text);
            assert_eq!((rest.trim_end(), parameters), (text, Parameters::default()));
        }
    }

    #[test]
    fn the_last_of_several_values_counts() {
        assert_eq!(taken_from("postgres://db?sslmode=disable&sslmode=require").1.mode, Some(Mode::Require));
    }

    #[test]
    fn protection_that_is_not_supported_is_refused_by_name() {
        for name in UNSUPPORTED {
            let refused = Parameters::take_from(&format!("postgres://db/x?{name}=1")).expect_err(name);
            assert!(refused.to_string().contains(name), "{refused}");
            assert!(Parameters::take_from(&format!("host=db {name}=1")).is_err(), "{name}");
        }
        assert!(matches!(Parameters::take_from("host=db sslmode=allow"), Err(BadTls::Mode)));
        assert!(matches!(Parameters::take_from("host=db sslnegotiation=direct"), Err(BadTls::Negotiation)));
    }
}
