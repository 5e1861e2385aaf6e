//! Session tokens. They are part of URLs: a client that has a URL may use the session until the session ends.
//!
//! The format is JSON Web Token with HS256 and a fixed header. Only one algorithm is accepted, so no library is used:
//! it would first have to be configured to refuse the others.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use casement_domain::{ApiKeyId, SessionId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use time::OffsetDateTime;

use crate::cluster::Owner;

/// The only header that is written and accepted: `{"alg":"HS256","typ":"JWT"}`.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
/// The beginning of a connect token, which no session token has.
const CONNECT_PURPOSE: &str = "connect";
/// The maximum size of a token, in bytes.
const MAX_BYTES: usize = 1024;

/// The access that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// Full access to the session.
    Drive,
    /// The live view of the session with input, and no other access.
    Interact,
    /// The live view of the session without input.
    View,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    scp: Permission,
    iat: i64,
    /// The node of the session and its project. Tokens of the version before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prj: Option<String>,
}

/// What a valid token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionToken {
    /// The session.
    pub session: SessionId,
    /// The access that the token grants.
    pub permission: Permission,
    /// The node and the project of the session, which never change.
    pub owner: Option<Owner>,
}

/// The text is not a valid session token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is not valid")]
pub struct BadToken;

/// Creates and verifies session tokens.
#[derive(Clone)]
pub struct SessionTokens {
    mac: Hmac<Sha256>,
    /// Verifies tokens that were created before the key was replaced.
    former: Option<Hmac<Sha256>>,
}

impl SessionTokens {
    /// Creates the codec. `key` must be the same on all nodes and stay the same over restarts; otherwise the URLs of
    /// running sessions become invalid.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self { mac: hmac(key), former: None }
    }

    /// Also verifies tokens that were created with this key.
    #[must_use]
    pub fn with_former_key(self, key: &[u8; 32]) -> Self {
        Self { former: Some(hmac(key)), ..self }
    }

    /// Creates the token of a session. Equal arguments result in equal tokens.
    #[must_use]
    pub fn mint(&self, session: SessionId, owner: Owner, permission: Permission, issued_at: OffsetDateTime) -> String {
        let claims = Claims {
            sub: session.to_string(),
            scp: permission,
            iat: issued_at.unix_timestamp(),
            nod: Some(owner.node.to_string()),
            prj: Some(owner.project.to_string()),
        };
        let claims = serde_json::to_vec(&claims).unwrap_or_else(|_| unreachable!("claims are strings and a number"));
        let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        let mac = self.mac.clone().chain_update(&signed).finalize().into_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// Creates a connect token: the permission to open one address with the authority of an API key, until `expires_at`. It
    /// stands in an address in place of the key.
    pub(crate) fn connect_token(&self, key: ApiKeyId, expires_at: OffsetDateTime) -> String {
        let signed = format!("{CONNECT_PURPOSE}.{key}.{}", expires_at.unix_timestamp());
        let mac = self.mac.clone().chain_update(&signed).finalize().into_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    /// Returns the key of a connect token that is valid at `now`. Does not check whether the key still is.
    ///
    /// # Errors
    /// [`BadToken`] if the format or the signature is wrong, or the connect token has expired.
    pub(crate) fn verify_connect_token(&self, token: &str, now: OffsetDateTime) -> Result<ApiKeyId, BadToken> {
        let signed = self.signed(token)?;
        let (key, expires_at) = signed
            .strip_prefix(CONNECT_PURPOSE)
            .and_then(|rest| rest.strip_prefix('.')?.split_once('.'))
            .ok_or(BadToken)?;
        let expires_at: i64 = expires_at.parse().map_err(|_| BadToken)?;
        if now.unix_timestamp() >= expires_at {
            return Err(BadToken);
        }
        key.parse().map_err(|_| BadToken)
    }

    /// Returns the part of a token before its signature, which is valid.
    fn signed<'a>(&self, text: &'a str) -> Result<&'a str, BadToken> {
        if text.len() > MAX_BYTES {
            return Err(BadToken);
        }
        let (signed, mac) = text.rsplit_once('.').ok_or(BadToken)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).map_err(|_| BadToken)?;
        let is_signed_by = |key: &Hmac<Sha256>| key.clone().chain_update(signed).verify_slice(&mac).is_ok();
        let is_signed = is_signed_by(&self.mac) || self.former.as_ref().is_some_and(is_signed_by);
        if is_signed { Ok(signed) } else { Err(BadToken) }
    }

    /// Returns what a token says. Does not check whether the session is still active.
    ///
    /// # Errors
    /// [`BadToken`] if the format or the signature is wrong.
    pub fn verify(&self, token: &str) -> Result<SessionToken, BadToken> {
        let signed = self.signed(token)?;
        let (header, claims) = signed.split_once('.').ok_or(BadToken)?;
        if header != HEADER {
            return Err(BadToken);
        }
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| BadToken)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| BadToken)?;
        let owner = claims.nod.zip(claims.prj).map(|(node, project)| {
            Ok(Owner { node: node.parse().map_err(|_| BadToken)?, project: project.parse().map_err(|_| BadToken)? })
        });
        let session = claims.sub.parse().map_err(|_| BadToken)?;
        Ok(SessionToken { session, permission: claims.scp, owner: owner.transpose()? })
    }
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes keys of every length"))
}

impl std::fmt::Debug for SessionTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionTokens(…)")
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::{
        mask_secrets,
        testing::{NOON, node_id, project_id, session_id},
    };

    use super::*;

    fn tokens() -> SessionTokens {
        SessionTokens::new(&[7; 32])
    }

    fn owner() -> Owner {
        Owner { node: node_id(), project: project_id() }
    }

    #[test]
    fn a_token_of_the_version_before_names_no_owner() {
        let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"sub":"{}","scp":"drive","iat":1}}"#, session_id(1)));
        let signed = format!("{HEADER}.{claims}");
        let mac = tokens().mac.chain_update(&signed).finalize().into_bytes();
        let expected = SessionToken { session: session_id(1), permission: Permission::Drive, owner: None };
        assert_eq!(tokens().verify(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))), Ok(expected));
    }

    #[test]
    fn a_token_verifies_with_its_session_owner_and_permission() {
        for permission in [Permission::Drive, Permission::Interact, Permission::View] {
            let token = tokens().mint(session_id(1), owner(), permission, NOON);
            let expected = SessionToken { session: session_id(1), permission, owner: Some(owner()) };
            assert_eq!(tokens().verify(&token), Ok(expected));
        }
    }

    #[test]
    fn a_token_with_any_changed_byte_is_refused() {
        let token = tokens().mint(session_id(1), owner(), Permission::View, NOON);
        for at in 0..token.len() {
            // The decoder also refuses unused trailing bits.
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(tokens().verify(&changed), Err(BadToken), "{at}");
        }
    }

    #[test]
    fn other_keys_algorithms_and_malformed_tokens_are_refused() {
        let token = tokens().mint(session_id(1), owner(), Permission::Drive, NOON);
        assert_eq!(SessionTokens::new(&[8; 32]).verify(&token), Err(BadToken));
        let claims = token.split('.').nth(1).expect("claims");
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        for text in ["", ".", "..", &format!("{none}.{claims}."), &format!("{HEADER}.{claims}."), &"a".repeat(5000)] {
            assert_eq!(tokens().verify(text), Err(BadToken), "{text}");
        }
    }

    #[test]
    fn a_replaced_key_verifies_its_tokens_and_creates_no_more() {
        let mint = |tokens: &SessionTokens| tokens.mint(session_id(1), owner(), Permission::Drive, NOON);
        let old = mint(&tokens());
        let both = SessionTokens::new(&[8; 32]).with_former_key(&[7; 32]);
        assert_eq!(both.verify(&old), tokens().verify(&old));
        let new = mint(&both);
        assert!(both.verify(&new).is_ok());
        assert_eq!(tokens().verify(&new), Err(BadToken));
        assert_eq!(SessionTokens::new(&[9; 32]).with_former_key(&[8; 32]).verify(&old), Err(BadToken));
    }

    #[test]
    fn a_connect_token_names_its_key_until_it_expires_and_is_no_session_token() {
        let key = ApiKeyId::from_ulid(session_id(7).ulid());
        let later = NOON + time::Duration::minutes(1);
        let token = tokens().connect_token(key, later);
        assert_eq!(tokens().verify_connect_token(&token, NOON), Ok(key));
        assert_eq!(tokens().verify_connect_token(&token, later), Err(BadToken));
        assert_eq!(tokens().verify(&token), Err(BadToken));
        let postponed = token.replacen(&later.unix_timestamp().to_string(), "99999999999", 1);
        assert_eq!(tokens().verify_connect_token(&postponed, NOON), Err(BadToken));
        let session = tokens().mint(session_id(7), owner(), Permission::Drive, NOON);
        assert_eq!(tokens().verify_connect_token(&session, NOON), Err(BadToken));
        assert_eq!(SessionTokens::new(&[8; 32]).verify_connect_token(&token, NOON), Err(BadToken));
    }

    #[test]
    fn a_masked_token_is_no_token() {
        let session = tokens().mint(session_id(1), owner(), Permission::Drive, NOON);
        let connect = tokens().connect_token(ApiKeyId::from_ulid(session_id(7).ulid()), NOON);
        for token in [session, connect] {
            let (_, signature) = token.rsplit_once('.').expect("a signature");
            let shown = mask_secrets(&format!("/vm/x?jwt={token}&a=b")).into_owned();
            assert!(!shown.contains(signature) && shown.ends_with(".…&a=b"), "{shown}");
        }
    }
}
