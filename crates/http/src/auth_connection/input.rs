//! The request bodies of auth connections.

use std::collections::BTreeMap;

use casement_domain::{
    auth_connection::{ConnectionRequest, CredentialRequest, SubmitRequest},
    reference::Reference,
};
use serde::Deserialize;

use crate::{
    from_fields::{from_fields, option, secrets},
    query::non_empty,
    schema::ToSchema,
};

/// The source of automatic logins: `{name}`, `{provider, path}`, `{provider, auto: true}` or `{auto: true}`; `{}` is
/// none.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = AuthCredentialReference)]
pub(crate) struct CredentialBody {
    /// The name of a credential of the project.
    name: Option<String>,
    /// The name of a credential provider.
    provider: Option<String>,
    /// The path of one item of the provider.
    path: Option<String>,
    /// Whether the provider's item for the domain is used; without a provider, the item of the first provider that has
    /// one.
    auto: Option<bool>,
}

/// A proxy of the project: `{id}` or `{name}`; `{}` is none.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = AuthProxyReference)]
pub(crate) struct ProxyBody {
    id: Option<String>,
    name: Option<String>,
}

/// An auth connection to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateAuthConnection)]
pub(crate) struct CreateBody {
    /// A host name. Required.
    #[schema(required, nullable = false)]
    domain: Option<String>,
    /// The profile that stays logged in; created if there is none of that name. Required.
    #[schema(required, nullable = false)]
    profile_name: Option<String>,
    /// Further host names that a login may visit; a label may be `*` (any one) or `**` (one or more). At most 50.
    /// Default: none.
    allowed_domains: Option<Vec<String>>,
    /// Whether a lost login is renewed automatically. Default: true.
    auto_reauth: Option<bool>,
    /// Whether the login is checked periodically. Default: true.
    health_checks: Option<bool>,
    /// The interval of the checks, 300 to 86400 seconds. Default: 3600.
    health_check_interval: Option<i64>,
    /// Whether logins are recorded. Default: false.
    record_session: Option<bool>,
    /// Whether the values of a login, except codes, are stored as a credential. Default: true; false for a key that does
    /// not allow `credentials:create`, `credentials:update` and `credentials:use` on all credentials of the project.
    save_credentials: Option<bool>,
    /// Default: none.
    credential: Option<CredentialBody>,
    /// The URL at which a login starts: http or https, at the domain or an allowed one. Default: the domain.
    login_url: Option<String>,
    /// Default: none.
    proxy: Option<ProxyBody>,
}

/// The changes of an auth connection; an absent field leaves its value unchanged.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateAuthConnection)]
pub(crate) struct UpdateBody {
    /// Replaces the whole list.
    allowed_domains: Option<Vec<String>>,
    auto_reauth: Option<bool>,
    health_checks: Option<bool>,
    /// 300 to 86400 seconds.
    health_check_interval: Option<i64>,
    record_session: Option<bool>,
    save_credentials: Option<bool>,
    /// `{}` removes the credential.
    credential: Option<CredentialBody>,
    /// `""` removes the URL.
    login_url: Option<String>,
    /// `{}` removes the proxy.
    proxy: Option<ProxyBody>,
}

/// A login to start.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = LoginAuthConnection)]
pub(crate) struct LoginBody {
    /// Default: the proxy of the auth connection.
    pub(super) proxy: Option<ProxyBody>,
    /// Whether the login is recorded. Default: as set for the auth connection.
    pub(super) record_session: Option<bool>,
}

/// The input that a login waits for: values, a selection, or values and one selection.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = SubmitAuthConnection)]
pub(crate) struct SubmitBody {
    /// The `interaction_id` that came with the fields and choices; another one is refused. Default: not checked.
    interaction_id: Option<String>,
    /// Values by the `id` of the field.
    field_values: Option<BTreeMap<String, String>>,
    /// Values by the name of the field; not with `field_values`.
    fields: Option<BTreeMap<String, String>>,
    /// The `id` of a choice.
    selected_choice_id: Option<String>,
    /// The `type` of an MFA option.
    mfa_option_id: Option<String>,
    /// The `id` of a sign-in option.
    sign_in_option_id: Option<String>,
    /// The `provider` of an SSO button.
    sso_provider: Option<String>,
    /// The `selector` of an SSO button.
    sso_button_selector: Option<String>,
}

from_fields!(CredentialBody => CredentialRequest { name, provider, path, auto });
from_fields!(ProxyBody => Reference { id, name });
from_fields!(CreateBody => ConnectionRequest {
    domain, profile_name, allowed_domains, auto_reauth, health_checks, health_check_interval, record_session,
    save_credentials, credential via option, login_url, proxy via option
});
from_fields!(UpdateBody => ConnectionRequest {
    allowed_domains, auto_reauth, health_checks, health_check_interval, record_session, save_credentials,
    credential via option, login_url, proxy via option, ..Self::default()
});
from_fields!(SubmitBody => SubmitRequest {
    interaction_id via non_empty, field_values via secrets, fields via secrets, selected_choice_id via non_empty, mfa_option_id via non_empty,
    sign_in_option_id via non_empty, sso_provider via non_empty, sso_button_selector via non_empty
});
