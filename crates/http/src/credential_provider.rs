//! `/org/credential_providers`. No response contains a token, or a secret of an item.

use actix_web::http::StatusCode;
use casement_domain::credential_provider::{
    CredentialProvider, ProviderItem, ProviderPlace, ProviderRequest, ProviderTest, ProviderUpdateRequest,
    ProviderVault,
};
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer, Moment},
    caller::OrganizationCaller,
    error::ErrorBody,
    from_fields::{from_fields, option},
};

/// An external store of logins.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProvider)]
pub(crate) struct ProviderBody {
    id: String,
    /// `passwordmanager` or `keepass`.
    provider_type: &'static str,
    name: String,
    /// Whether it is searched for logins.
    enabled: bool,
    /// The position in the order of search: lower is first; among equals, the older one.
    priority: u32,
    /// The projects whose keys may log in with it. The organization's own keys always may.
    project_ids: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// The URL of the Connect server, if it is not that of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_url: Option<String>,
    /// The name of the KeePass database.
    #[serde(skip_serializing_if = "Option::is_none")]
    vault: Option<String>,
}

impl From<CredentialProvider> for ProviderBody {
    fn from(provider: CredentialProvider) -> Self {
        let provider_type = provider.place.kind().as_str();
        let (server_url, vault) = match provider.place {
            ProviderPlace::PasswordManager(url) => (url.as_ref().map(Url::to_string), None),
            ProviderPlace::Keepass(vault) => (None, Some(vault)),
        };
        Self {
            id: provider.id.to_string(),
            provider_type,
            name: provider.name.as_str().to_owned(),
            enabled: provider.enabled,
            priority: provider.priority,
            project_ids: provider.projects.iter().map(ToString::to_string).collect(),
            created_at: Moment(provider.created_at),
            updated_at: Moment(provider.updated_at),
            server_url,
            vault,
        }
    }
}

/// A login of a provider, without its secrets.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProviderItem)]
pub(crate) struct ItemBody {
    /// The id in the store.
    id: String,
    title: String,
    /// `vault/title`, which an auth connection refers to.
    path: String,
    vault_id: String,
    vault_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    urls: Vec<String>,
}

impl From<&ProviderItem> for ItemBody {
    fn from(item: &ProviderItem) -> Self {
        Self {
            id: item.id.clone(),
            title: item.title.clone(),
            path: item.path(),
            vault_id: item.vault.id.clone(),
            vault_name: item.vault.name.clone(),
            urls: item.urls.clone(),
        }
    }
}

/// All logins of a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProviderItems)]
pub(crate) struct ItemsBody {
    items: Vec<ItemBody>,
}

/// A vault of a store.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProviderVault)]
pub(crate) struct VaultBody {
    id: String,
    name: String,
}

/// The result of a test of a provider.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProviderTest)]
pub(crate) struct TestBody {
    /// Whether the store responded and accepted the token.
    success: bool,
    /// The vaults that the token opens.
    vaults: Vec<VaultBody>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<ProviderTest> for TestBody {
    fn from(test: ProviderTest) -> Self {
        let vault = |ProviderVault { id, name }| VaultBody { id, name };
        match test.vaults {
            Ok(vaults) => Self { success: true, vaults: vaults.into_iter().map(vault).collect(), error: None },
            Err(fault) => Self { success: false, vaults: Vec::new(), error: Some(fault.to_string()) },
        }
    }
}

/// A provider to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateCredentialProvider)]
pub(crate) struct ProviderInput {
    /// 1 to 255 characters, unique in the organization. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// `passwordmanager` (or `onepassword`): a 1Password Connect server; `keepass`: a KeePass database. Required.
    #[schema(required, nullable = false)]
    provider_type: Option<String>,
    /// The Connect server's access token, or the database's password; 1 to 8,192 characters. Sealed, and never shown again. Required.
    #[schema(required, nullable = false)]
    token: Option<String>,
    /// `passwordmanager`: the base URL of the Connect server. Default: that of the configuration.
    server_url: Option<String>,
    /// `keepass`: the name of a database of the configuration. Required there.
    vault: Option<String>,
    /// The lifetime of the cached list of items in seconds, 0 to 86,400. Default: 300.
    cache_ttl_seconds: Option<i64>,
    /// The projects whose keys may log in with it, at most 100. Default: none, so that only the organization's own keys may.
    project_ids: Option<Vec<String>>,
}

/// The changes of a provider; an absent field stays.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateCredentialProvider)]
pub(crate) struct ProviderChanges {
    /// 1 to 255 characters, unique in the organization.
    name: Option<String>,
    /// The new token.
    token: Option<String>,
    /// The new URL of the server; requires its `token`.
    server_url: Option<String>,
    /// The new database.
    vault: Option<String>,
    /// 0 to 86,400.
    cache_ttl_seconds: Option<i64>,
    /// Whether it is searched for logins.
    enabled: Option<bool>,
    /// 0 to 1,000; lower is searched first.
    priority: Option<i64>,
    /// The projects whose keys may log in with it, replacing the present ones; `[]`: none.
    project_ids: Option<Vec<String>>,
}

from_fields!(ProviderInput => ProviderRequest {
    name, provider_type, token via option, server_url, vault, cache_ttl_seconds, project_ids
});
from_fields!(ProviderChanges => ProviderUpdateRequest {
    name, token via option, server_url, vault, cache_ttl_seconds, enabled, priority, project_ids
});

/// Keeps a provider, to be asked after all others. It is not asked yet.
#[utoipa::path(
    post, path = "/org/credential_providers", tag = "Credential providers", request_body = ProviderInput,
    responses(
        (status = 201, body = ProviderBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 409, description = "Another provider bears the name", body = ErrorBody),
        (status = 429, description = "The organization has as many as it may have", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn create_credential_provider(mut caller: OrganizationCaller) -> Answer {
    let wish = caller.json::<ProviderInput>().await?.into();
    let provider = caller.services().credential_providers.create(caller.organization(), wish).await?;
    let body = ProviderBody::from(provider);
    Ok(answer::created(&format!("/org/credential_providers/{}", body.id), &body))
}

/// Lists providers, in the order in which they are asked.
#[utoipa::path(
    get, path = "/org/credential_providers", tag = "Credential providers",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 100; default: 20"),
        ("offset" = Option<u64>, Query, description = "How many come before; default: 0"),
        ("query" = Option<String>, Query, description = "Part of the name, or a whole id"),
    ),
    responses(
        (status = 200, body = [ProviderBody], headers(
            ("X-Has-More" = bool, description = "Whether there is a further page"),
            ("X-Next-Offset" = u64, description = "Where it begins; 0 on the last page"),
        )),
        (status = 400, description = "A parameter breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_credential_providers(caller: OrganizationCaller) -> Answer {
    let query = caller.query()?;
    let part = query.text("query")?.filter(|text| !text.is_empty());
    let found = caller.services().credential_providers.list(caller.organization(), part, query.page()?).await?;
    Ok(answer::list(&found.map(ProviderBody::from)))
}

/// Reads one provider, without its token.
#[utoipa::path(
    get, path = "/org/credential_providers/{id}", tag = "Credential providers", params(("id" = String, Path)),
    responses(
        (status = 200, body = ProviderBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such provider", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn get_credential_provider(caller: OrganizationCaller) -> Answer {
    let provider = caller.services().credential_providers.get(caller.organization(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProviderBody::from(provider)))
}

/// Changes a provider.
#[utoipa::path(
    patch, path = "/org/credential_providers/{id}", tag = "Credential providers", params(("id" = String, Path)),
    request_body = ProviderChanges,
    responses(
        (status = 200, body = ProviderBody),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such provider", body = ErrorBody),
        (status = 409, description = "Another provider bears the name", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn update_credential_provider(mut caller: OrganizationCaller) -> Answer {
    let which = caller.path("id")?;
    let wish = caller.json::<ProviderChanges>().await?.into();
    let provider = caller.services().credential_providers.update(caller.organization(), &which, wish).await?;
    Ok(answer::record(StatusCode::OK, &ProviderBody::from(provider)))
}

/// Forgets a provider, with its token.
#[utoipa::path(
    delete, path = "/org/credential_providers/{id}", tag = "Credential providers", params(("id" = String, Path)),
    responses(
        (status = 204, description = "It is gone"),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such provider", body = ErrorBody),
        (status = 409, description = "An auth connection names it", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn delete_credential_provider(caller: OrganizationCaller) -> Answer {
    caller.services().credential_providers.delete(caller.organization(), &caller.path("id")?).await?;
    Ok(answer::nothing())
}

/// Lists what logins a provider has, without their secrets; as known for at most its `cache_ttl_seconds`.
#[utoipa::path(
    get, path = "/org/credential_providers/{id}/items", tag = "Credential providers", params(("id" = String, Path)),
    responses(
        (status = 200, body = ItemsBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such provider", body = ErrorBody),
        (status = 502, description = "The store failed, or refused the token", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn list_credential_provider_items(caller: OrganizationCaller) -> Answer {
    let items = caller.services().credential_providers.items(caller.organization(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ItemsBody { items: items.iter().map(ItemBody::from).collect() }))
}

/// Asks a provider what its token opens.
#[utoipa::path(
    post, path = "/org/credential_providers/{id}/test", tag = "Credential providers", params(("id" = String, Path)),
    responses(
        (status = 200, description = "What was found; `success` says whether it is good", body = TestBody),
        (status = 403, description = "The key is not the organization's own", body = ErrorBody),
        (status = 404, description = "There is no such provider", body = ErrorBody),
        (status = "5XX", description = "The database is away", body = ErrorBody),
    )
)]
pub(crate) async fn test_credential_provider(caller: OrganizationCaller) -> Answer {
    let test = caller.services().credential_providers.test(caller.organization(), &caller.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &TestBody::from(test)))
}
