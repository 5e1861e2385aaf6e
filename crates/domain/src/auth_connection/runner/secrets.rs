//! The secrets of a login: those of a credential or of a provider's item, and those that a person entered in the flow.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;
use url::Url;

use super::FlowRunner;
use crate::auth_connection::submit::value_key;
use crate::auth_connection::{
    AuthConnection, CredentialRef, ExternalLogin, ExternalWanted, Flow, FlowError, FlowFailure, Submission,
};
use crate::credential::{CredentialError, Route, Sites, TotpSecret};
use crate::login_page::{Field, FieldKind, MfaKind, clean};
use crate::sealing::SealError;

/// The secrets of a login, in clear text for the duration of one step.
pub(super) struct KnownSecrets {
    values: BTreeMap<String, SecretString>,
    totp: Option<TotpSecret>,
    totp_code: Option<SecretString>,
    pub(super) sso_provider: Option<String>,
    /// The sites at which the values and codes above may be typed.
    pub(super) sites: Sites,
    /// The values that a person entered in this flow, by name.
    entered: BTreeMap<String, EnteredValue>,
    route: Route,
}

/// A value that a person entered, and the origin of the page that requested it.
#[derive(Clone, Debug)]
pub(super) struct EnteredValue {
    pub(super) value: SecretString,
    pub(super) origin: String,
}

/// The stored value for a field.
pub(super) enum StoredValue {
    /// A value that may be typed into the field.
    Here(SecretString),
    /// A value for pages of another site only.
    OtherSite,
    /// No value.
    None,
}

impl KnownSecrets {
    fn new(route: Route) -> Self {
        Self {
            values: BTreeMap::new(),
            totp: None,
            totp_code: None,
            sso_provider: None,
            sites: Sites::default(),
            entered: BTreeMap::new(),
            route,
        }
    }

    /// Returns the value for the field. A value that a person entered in this flow is newer than a stored one.
    pub(super) fn value(&self, field: &Field, now: OffsetDateTime) -> StoredValue {
        let of_app = matches!(field.mfa, None | Some(MfaKind::Totp));
        let stored = match field.kind {
            FieldKind::TotpCode => self.code(now),
            FieldKind::Code if of_app => self.code(now),
            FieldKind::Code | FieldKind::TotpSecret => None,
            FieldKind::Identifier | FieldKind::Password | FieldKind::Text => {
                let entered = named(&self.entered, &field.reference);
                if let Some(entered) = entered.filter(|entered| self.allows_again(entered, &field.origin)) {
                    return StoredValue::Here(entered.value.clone());
                }
                named(&self.values, &field.reference).cloned()
            }
        };
        match stored {
            Some(value) if self.allows(&field.origin) => StoredValue::Here(value),
            Some(_) => StoredValue::OtherSite,
            None => StoredValue::None,
        }
    }

    /// Returns whether stored values may be typed into pages of the origin.
    pub(super) fn allows(&self, origin: &str) -> bool {
        self.sites.allow(origin, self.route)
    }

    /// Returns whether an entered value may be typed into a page of `origin`: one of the same site, and no less secure.
    fn allows_again(&self, entered: &EnteredValue, origin: &str) -> bool {
        entered.origin == origin || Sites::of_addresses([&*entered.origin]).allow(origin, self.route)
    }

    pub(super) fn has_totp(&self) -> bool {
        self.totp.is_some() || self.totp_code.is_some()
    }

    fn code(&self, now: OffsetDateTime) -> Option<SecretString> {
        self.totp.as_ref().map(|secret| secret.code(now).code).or_else(|| self.totp_code.clone())
    }

    /// Returns the user name, for a page of the origin.
    pub(super) fn identifier(&self, origin: &str) -> Option<&str> {
        let entered = named(&self.entered, "username").filter(|entered| self.allows_again(entered, origin));
        let stored = || named(&self.values, "username").filter(|_| self.allows(origin));
        Some(entered.map(|entered| &entered.value).or_else(stored)?.expose_secret())
    }
}

/// Returns the value whose name is `reference` or a synonym.
fn named<'a, T>(values: &'a BTreeMap<String, T>, reference: &str) -> Option<&'a T> {
    let keys: Vec<String> = values.keys().cloned().collect();
    values.get(value_key(&keys, reference)?)
}

impl FlowRunner {
    /// Returns the secrets that are known now. A provider is queried each time, because its items are not stored.
    pub(super) async fn known(&self, connection: &AuthConnection, flow: &Flow) -> Result<KnownSecrets, FlowFailure> {
        // Through a proxy of the project, only an encrypted page is certain to be the site's own.
        let route = if flow.proxy.is_some() { Route::Proxied } else { Route::Direct };
        let stored = match &connection.settings.credential {
            Some(CredentialRef::Named(_)) => self.load_credential(connection, route).await?,
            Some(CredentialRef::Item { provider, path }) => {
                self.load_from_provider(connection, flow, (Some(provider), ExternalWanted::Path(path))).await?
            }
            Some(CredentialRef::Auto { provider }) => {
                self.load_from_provider(connection, flow, (Some(provider), ExternalWanted::Domain(&connection.domain)))
                    .await?
            }
            Some(CredentialRef::AutoAny) => {
                self.load_from_provider(connection, flow, (None, ExternalWanted::Domain(&connection.domain))).await?
            }
            None => KnownSecrets::new(route),
        };
        Ok(KnownSecrets { entered: self.entered(flow)?, route, ..stored })
    }

    async fn load_credential(&self, connection: &AuthConnection, route: Route) -> Result<KnownSecrets, FlowFailure> {
        let Some(credential) = &connection.credential else { return Ok(KnownSecrets::new(route)) };
        let opened = self.deps.credentials.open(credential.id).await.map_err(|error| match error {
            CredentialError::Seal(error) => sealed(&error),
            other => FlowFailure::new(FlowError::Internal, other.to_string()),
        })?;
        let opened = opened.unwrap_or_default();
        let sso_provider = credential.sso_provider.clone();
        let sites = Sites::of_domain(&credential.domain);
        Ok(KnownSecrets { values: opened.values, totp: opened.totp, sso_provider, sites, ..KnownSecrets::new(route) })
    }

    async fn load_from_provider(
        &self,
        connection: &AuthConnection,
        flow: &Flow,
        (provider, wanted): (Option<&str>, ExternalWanted<'_>),
    ) -> Result<KnownSecrets, FlowFailure> {
        let found = self.connections.deps().external.fetch(connection.provider_scope(), provider, wanted).await;
        let found = found.map_err(|why| FlowFailure::new(FlowError::ProviderError, why))?;
        let Some(found) = found else {
            if !flow.unattended {
                // A person can enter the values.
                return Ok(KnownSecrets::new(Route::Direct));
            }
            let message = match provider {
                Some(provider) => format!("credential provider {provider} has no item that fits"),
                None => "no credential provider has an item that fits".to_owned(),
            };
            return Err(FlowFailure::new(FlowError::CredentialMissing, message));
        };
        let ExternalLogin { values, totp, totp_code, sites } = found;
        Ok(KnownSecrets { values, totp, totp_code, sites, ..KnownSecrets::new(Route::Direct) })
    }

    /// Returns the values that a person has entered in this flow, by name.
    pub(super) fn entered(&self, flow: &Flow) -> Result<BTreeMap<String, EnteredValue>, FlowFailure> {
        let Some(bytes) = &flow.entered else { return Ok(BTreeMap::new()) };
        let text = self.open(&Flow::entered_place(flow.id), bytes)?;
        // Values that are stored without an origin are never typed again.
        let read: BTreeMap<String, [String; 2]> = serde_json::from_str(text.expose_secret()).unwrap_or_default();
        Ok(read
            .into_iter()
            .map(|(name, [value, origin])| (name, EnteredValue { value: value.into(), origin }))
            .collect())
    }

    /// Returns the entered values of the flow with `more`, sealed.
    pub(super) fn seal_entered(
        &self,
        flow: &Flow,
        more: BTreeMap<String, EnteredValue>,
    ) -> Result<Option<Vec<u8>>, FlowFailure> {
        let mut all = self.entered(flow)?;
        all.extend(more);
        if all.is_empty() {
            return Ok(None);
        }
        let plain: BTreeMap<&str, [&str; 2]> = all
            .iter()
            .map(|(name, entered)| (name.as_str(), [entered.value.expose_secret(), entered.origin.as_str()]))
            .collect();
        let text = serde_json::json!(plain).to_string();
        let sealer = &self.connections.deps().sealer;
        sealer.seal(&Flow::entered_place(flow.id), text.as_bytes()).map(Some).map_err(|error| sealed(&error))
    }

    /// Returns the submission that is not typed yet.
    pub(super) fn submission(&self, flow: &Flow) -> Result<Option<Submission>, FlowFailure> {
        let Some(bytes) = &flow.submission else { return Ok(None) };
        let text = self.open(&Flow::submission_place(flow.id), bytes)?;
        let read: serde_json::Value = serde_json::from_str(text.expose_secret()).unwrap_or_default();
        let values = read.get("values").and_then(serde_json::Value::as_object);
        let value = |(key, value): (&String, &serde_json::Value)| Some((key.clone(), value.as_str()?.into()));
        let values = values.map(|values| values.iter().filter_map(value).collect()).unwrap_or_default();
        let choice = read.get("choice").and_then(serde_json::Value::as_str).map(str::to_owned);
        Ok(Some(Submission { values, choice }))
    }

    fn open(&self, place: &str, bytes: &[u8]) -> Result<SecretString, FlowFailure> {
        let clear = self.connections.deps().sealer.open(place, bytes).map_err(|error| sealed(&error))?;
        let text = std::str::from_utf8(clear.expose_secret()).map_err(|_| sealed(&SealError::Damaged))?;
        Ok(text.into())
    }
}

/// Returns the failure of a login whose stored values are for another site than the page.
pub(super) fn other_site(connection: &AuthConnection, stored: &KnownSecrets, origin: &str) -> FlowFailure {
    let page = clean(origin, 300);
    let what = match &connection.settings.credential {
        Some(CredentialRef::Named(name)) => match &connection.credential {
            Some(credential) => format!("the credential {name} is for {}", credential.domain),
            None => format!("the credential {name} is for another site"),
        },
        Some(CredentialRef::Item { provider, path }) => {
            format!("the item {path} of the credential provider {provider} is for another site")
        }
        Some(CredentialRef::Auto { .. } | CredentialRef::AutoAny) | None => {
            format!("the item of the credential provider for {} belongs to another site", connection.domain)
        }
    };
    let is_near = Url::parse(origin).is_ok_and(|url| url.host_str().is_some_and(|host| stored.sites.is_near(host)));
    let why = if stored.sites.is_empty() {
        "an item without a web address is typed nowhere by itself".to_owned()
    } else if is_near {
        format!("{page} asks for it, which is not encrypted or at another port")
    } else {
        format!("{page} asks for it")
    };
    FlowFailure::new(FlowError::DomainNotAllowed, format!("{what}, and {why}: nothing was typed"))
}

fn sealed(error: &SealError) -> FlowFailure {
    FlowFailure::new(FlowError::Internal, format!("the stored credential cannot be used: {error}"))
}
