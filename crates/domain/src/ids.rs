//! Identifiers: one type per resource over a ULID, so that they cannot be confused.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;

use crate::clock::IdSource;

/// The error of a text that is not an identifier: 26 characters of Crockford's base 32, the first one `0` to `7`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier")]
pub struct BadId;

/// The pattern of identifiers, in either case.
pub const PATTERN: &str = "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$";

/// Returns whether `text` has the shape of an identifier, in either case. Such a text is refused as a name.
#[must_use]
pub fn is_id_shaped(text: &str) -> bool {
    parse_ulid(text).is_ok()
}

/// Parses the text of an identifier of any resource.
pub(crate) fn parse_ulid(text: &str) -> Result<Ulid, BadId> {
    // The decoder also accepts the letters I, L and O, and wraps a first character above 7.
    let plain = text.len() == 26
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() && !matches!(b.to_ascii_lowercase(), b'i' | b'l' | b'o' | b'u'))
        && matches!(text.as_bytes().first(), Some(b'0'..=b'7'));
    if !plain {
        return Err(BadId);
    }
    Ulid::from_string(text).map_err(|_| BadId)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Formatted as 26 lower-case characters, and parsed in either case.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            /// Creates a new identifier.
            #[must_use]
            pub fn mint(ids: &dyn IdSource) -> Self {
                Self(ids.next())
            }

            /// Returns the ULID, for an adapter that stores it.
            #[must_use]
            pub const fn ulid(self) -> Ulid {
                self.0
            }

            /// Creates the identifier from a stored ULID.
            #[must_use]
            pub const fn from_ulid(ulid: Ulid) -> Self {
                Self(ulid)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                parse_ulid(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = [0; ulid::ULID_LEN];
                let text = self.0.array_to_str(&mut buffer);
                text.make_ascii_lowercase();
                f.write_str(text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

id!(/** The identifier of an organization. */ OrganizationId);
id!(/** The identifier of a user, the creator of an API key. */ UserId);
id!(/** The identifier of a project. */ ProjectId);
id!(/** The identifier of an API key. */ ApiKeyId);
id!(/** The identifier of an audit record. */ AuditRecordId);
id!(/** The identifier of an audit destination. */ AuditDestinationId);
id!(/** The identifier of one run of a node's server process. */ NodeRunId);
id!(/** The identifier of a session: one caller's use of one browser. */ SessionId);
id!(/** The identifier of a replay: the recorded video of a session. */ ReplayId);
id!(/** The identifier of a process that a caller started in a session. */ ProcessId);
id!(/** The identifier of a browser extension. */ ExtensionId);
id!(/** The identifier of a proxy. */ ProxyId);
id!(/** The identifier of a credential. */ CredentialId);
id!(/** The identifier of a deployment. */ DeploymentId);
id!(/** The identifier of one version of an app, registered by a deployment. */ AppVersionId);
id!(/** The identifier of an invocation: one call of an action. */ InvocationId);
id!(/** The identifier of an auth connection. */ AuthConnectionId);
id!(/** The identifier of a login flow of an auth connection. */ AuthFlowId);
id!(/** The identifier of a credential provider. */ CredentialProviderId);
id!(/** The identifier of a telemetry destination. */ TelemetryDestinationId);
id!(/** The identifier of a profile. */ ProfileId);
id!(/** The identifier of a profile version. */ ProfileVersionId);
id!(/** The identifier of a browser and its sandbox; callers never see it. */ BrowserId);
id!(/** The identifier of a pool. */ PoolId);
id!(/** The identifier of a node. */ NodeId);
id!(/** The identifier of a database, for the blob stores that belong to it. */ DatabaseId);
id!(/** The identifier of a blob store: a directory, or a part of a bucket. */ BlobStoreId);
id!(/** The identifier of a ticket in the wait queue of a pool. */ TicketId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_in_lower_case_and_read_in_either() {
        let id: SessionId = "01K9ZK0000000000000000000A".parse().expect("an id");
        assert_eq!(id.to_string(), "01k9zk0000000000000000000a");
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
    }

    #[test]
    fn a_text_without_the_shape_of_an_id_is_refused() {
        for text in [
            "",
            "x",
            "01k9zk0000000000000000000",
            "81k9zk0000000000000000000a",
            "01k9zk000000000000000000il",
            "01k9zk-000000000000000000a",
        ] {
            assert_eq!(text.parse::<PoolId>(), Err(BadId), "{text}");
        }
    }
}
