//! Bodies of requests.

use std::collections::BTreeMap;

use casement_domain::auth_connection::{ConnectionInput, CredentialInput, LoginInput, ProxyInput, SubmitInput};
use serde::Deserialize;
use utoipa::ToSchema;

/// What logs in by itself: `{name}`, `{provider, path}`, `{provider, auto: true}` or `{auto: true}`; `{}` is none.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = AuthCredentialReference)]
pub(crate) struct CredentialBody {
    /// A credential of the project.
    name: Option<String>,
    /// A credential provider.
    provider: Option<String>,
    /// One item of it.
    path: Option<String>,
    /// The item that it has for the domain; without a provider, the first of them in their order that has one.
    auto: Option<bool>,
}

/// A proxy of the project: `{id}` or `{name}`; `{}` is none.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = AuthProxyReference)]
pub(crate) struct ProxyBody {
    id: Option<String>,
    name: Option<String>,
}

/// An auth connection to make.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateAuthConnection)]
pub(crate) struct CreateBody {
    /// A host name. Required.
    #[schema(required, nullable = false)]
    domain: Option<String>,
    /// The profile that is kept logged in; made if there is none of that name. Required.
    #[schema(required, nullable = false)]
    profile_name: Option<String>,
    /// Host names where a login may go, too; a label may be `*` (any one) or `**` (one or more). At most 50. Default: none.
    allowed_domains: Option<Vec<String>>,
    /// Whether a login that is gone is made anew by itself. Default: true.
    auto_reauth: Option<bool>,
    /// Whether it is looked now and then if the login still holds. Default: true.
    health_checks: Option<bool>,
    /// How often, 300 to 86400 seconds. Default: 3600.
    health_check_interval: Option<i64>,
    /// Whether logins are recorded. Default: false.
    record_session: Option<bool>,
    /// Whether what a login was given is kept as a credential, codes aside. Default: true.
    save_credentials: Option<bool>,
    /// Default: none.
    credential: Option<CredentialBody>,
    /// Where a login begins: http or https, at the domain or an allowed one. Default: the domain.
    login_url: Option<String>,
    /// Default: none.
    proxy: Option<ProxyBody>,
}

/// What to change of an auth connection; what is absent stays as it is.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateAuthConnection)]
pub(crate) struct UpdateBody {
    /// In place of those before.
    allowed_domains: Option<Vec<String>>,
    auto_reauth: Option<bool>,
    health_checks: Option<bool>,
    /// 300 to 86400 seconds.
    health_check_interval: Option<i64>,
    record_session: Option<bool>,
    save_credentials: Option<bool>,
    /// `{}` clears.
    credential: Option<CredentialBody>,
    /// `""` clears.
    login_url: Option<String>,
    /// `{}` clears.
    proxy: Option<ProxyBody>,
}

/// A login to begin.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = LoginAuthConnection)]
pub(crate) struct LoginBody {
    /// Default: the connection's.
    proxy: Option<ProxyBody>,
    /// Default: the connection's.
    record_session: Option<bool>,
}

/// What a login waits for. Values may come with one selection.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = SubmitAuthConnection)]
pub(crate) struct SubmitBody {
    /// By the `id` of the field.
    field_values: Option<BTreeMap<String, String>>,
    /// By the name of the field; not with `field_values`.
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

impl From<CredentialBody> for CredentialInput {
    fn from(body: CredentialBody) -> Self {
        Self { name: body.name, provider: body.provider, path: body.path, auto: body.auto }
    }
}

impl From<ProxyBody> for ProxyInput {
    fn from(body: ProxyBody) -> Self {
        Self { id: body.id, name: body.name }
    }
}

impl From<UpdateBody> for ConnectionInput {
    fn from(body: UpdateBody) -> Self {
        Self {
            domain: None,
            profile_name: None,
            allowed_domains: body.allowed_domains,
            auto_reauth: body.auto_reauth,
            health_checks: body.health_checks,
            health_check_interval: body.health_check_interval,
            record_session: body.record_session,
            save_credentials: body.save_credentials,
            credential: body.credential.map(Into::into),
            login_url: body.login_url,
            proxy: body.proxy.map(Into::into),
        }
    }
}

impl From<CreateBody> for ConnectionInput {
    fn from(body: CreateBody) -> Self {
        Self {
            domain: body.domain,
            profile_name: body.profile_name,
            allowed_domains: body.allowed_domains,
            auto_reauth: body.auto_reauth,
            health_checks: body.health_checks,
            health_check_interval: body.health_check_interval,
            record_session: body.record_session,
            save_credentials: body.save_credentials,
            credential: body.credential.map(Into::into),
            login_url: body.login_url,
            proxy: body.proxy.map(Into::into),
        }
    }
}

impl From<LoginBody> for LoginInput {
    fn from(body: LoginBody) -> Self {
        Self { proxy: body.proxy.map(Into::into), record_session: body.record_session }
    }
}

impl From<SubmitBody> for SubmitInput {
    fn from(body: SubmitBody) -> Self {
        let secret =
            |values: BTreeMap<String, String>| values.into_iter().map(|(key, value)| (key, value.into())).collect();
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        Self {
            field_values: body.field_values.map(secret),
            fields: body.fields.map(secret),
            selected_choice_id: given(body.selected_choice_id),
            mfa_option_id: given(body.mfa_option_id),
            sign_in_option_id: given(body.sign_in_option_id),
            sso_provider: given(body.sso_provider),
            sso_button_selector: given(body.sso_button_selector),
        }
    }
}
