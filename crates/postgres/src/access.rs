//! What a connection must be able to do, as `target_session_attrs` of the connection string demands.

use crate::connection_string;

const PARAMETER: &str = "target_session_attrs";

/// Which servers are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// A server that can write: of several hosts, the primary. The default, because Casement can do nothing without.
    #[default]
    ReadWrite,
    /// Any server.
    Any,
}

impl Access {
    /// Takes the parameter out of a connection string. Returns the rest of the string; `None` for a value with which
    /// nothing could ever be stored.
    pub(crate) fn take_from(connection: &str) -> Option<(String, Self)> {
        let (rest, taken) = connection_string::take(connection, |name| name == PARAMETER);
        let access = match taken.last().map(|(_, value)| value.as_str()) {
            None | Some("read-write" | "primary") => Self::ReadWrite,
            Some("any") => Self::Any,
            Some(_) => return None,
        };
        Some((rest, access))
    }

    /// Returns the value of the parameter, as libpq knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::Any => "any",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_must_be_able_to_write_unless_any_is_accepted() {
        let taken = |url: &str| Access::take_from(url);
        let [plain, hosts] = ["postgresql://db/x", "host=a,b dbname=x"];
        assert_eq!(taken(plain), Some((plain.to_owned(), Access::ReadWrite)));
        assert_eq!(taken(hosts).map(|(_, access)| access), Some(Access::ReadWrite));
        for value in ["read-write", "primary"] {
            let url = format!("{plain}?{PARAMETER}={value}");
            assert_eq!(taken(&url), Some((plain.to_owned(), Access::ReadWrite)));
        }
        let (rest, access) = taken(&format!("{plain}?{PARAMETER}=any&connect_timeout=3")).expect("a value");
        assert_eq!((&*rest, access), ("postgresql://db/x?connect_timeout=3", Access::Any));
        assert_eq!(taken(&format!("{hosts} {PARAMETER}=any")).map(|(_, access)| access), Some(Access::Any));
        for value in ["read-only", "standby", "prefer-standby", ""] {
            assert_eq!(taken(&format!("{plain}?{PARAMETER}={value}")), None, "{value}");
        }
    }
}
