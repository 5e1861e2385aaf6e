//! Identifiers: one type per resource over a ULID, so that none can be taken for another's.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;

use crate::clock::IdSource;

/// The text is not an identifier: 26 characters of Crockford's base 32, the first one `0` to `7`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier")]
pub struct BadId;

/// Whether `text` has the shape of an identifier, in either case. Such a text is refused as a name.
#[must_use]
pub fn is_id_shaped(text: &str) -> bool {
    parse(text).is_ok()
}

fn parse(text: &str) -> Result<Ulid, BadId> {
    // The decoder takes the confusable letters I, L and O too, and wraps a first character above 7: neither is ours.
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
        /// Written as 26 lower-case characters; either case is read.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            /// A new identifier.
            #[must_use]
            pub fn mint(ids: &dyn IdSource) -> Self {
                Self(ids.next())
            }

            /// The identifier as a ULID, for an adapter that stores it.
            #[must_use]
            pub const fn ulid(self) -> Ulid {
                self.0
            }

            /// The identifier that an adapter had stored.
            #[must_use]
            pub const fn from_ulid(ulid: Ulid) -> Self {
                Self(ulid)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                parse(text).map(Self)
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

id!(/** Names one organization. */ OrganizationId);
id!(/** Names one user: who made a key. */ UserId);
id!(/** Names one project. */ ProjectId);
id!(/** Names one API key. */ ApiKeyId);
id!(/** Names one audit record. */ AuditRecordId);
id!(/** Names one run of a node's server. */ NodeRunId);
id!(/** Names one browser session: one lease of one browser. */ SessionId);
id!(/** Names one recording of a session. */ ReplayId);
id!(/** Names one program that a caller has started in a session. */ ProcessId);
id!(/** Names one browser extension that is kept. */ ExtensionId);
id!(/** Names one proxy that is kept. */ ProxyId);
id!(/** Names one credential that is kept. */ CredentialId);
id!(/** Names one deployment of a program. */ DeploymentId);
id!(/** Names one app at one version, as a deployment registered it. */ AppVersionId);
id!(/** Names one run of an action. */ InvocationId);
id!(/** Names one auth connection. */ AuthConnectionId);
id!(/** Names one flow of an auth connection. */ AuthFlowId);
id!(/** Names one credential provider. */ CredentialProviderId);
id!(/** Names one profile. */ ProfileId);
id!(/** Names one version of a profile. */ ProfileVersionId);
id!(/** Names one running browser with its sandbox; a caller never sees it. */ BrowserId);
id!(/** Names one browser pool. */ PoolId);
id!(/** Names one node: one running server with its data directory. */ NodeId);
id!(/** Names one place in the waiting line of a pool. */ TicketId);

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
    fn what_is_not_an_id_is_refused() {
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
