//! The routes `/org/credential_providers`. No response contains a token, or a secret of an item.

use actix_web::http::StatusCode;
use casement_domain::credential_provider::{
    CredentialProvider, ProviderItem, ProviderPlace, ProviderRequest, ProviderTest, ProviderUpdateRequest,
    ProviderVault,
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    answer::{self, Answer, Moment},
    from_fields::{from_fields, option},
    operation::{LIMIT_REACHED, NAME_TAKEN, Operations},
    query::non_empty,
    request::{OrganizationKey, Request},
    schema::{IntoParams, ToSchema},
};

/// An external store of logins.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialProvider)]
pub(crate) struct ProviderBody {
    id: String,
    /// `passwordmanager` or `onepassword`, as its creator wrote it, or `keepass`.
    provider_type: &'static str,
    name: String,
    /// Whether the provider is searched for logins.
    enabled: bool,
    /// The position in the order of search: lower is first; of two equal ones, the older provider is first.
    priority: u32,
    /// The projects whose keys may log in with the provider. The organization's own keys always may.
    project_ids: Vec<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// The URL of the Connect server, unless it is the URL of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_url: Option<String>,
    /// The name of the KeePass database.
    #[serde(skip_serializing_if = "Option::is_none")]
    vault: Option<String>,
}

impl From<CredentialProvider> for ProviderBody {
    fn from(provider: CredentialProvider) -> Self {
        let provider_type = provider.type_name();
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
    /// The name: 1 to 255 characters, unique in the organization. Required.
    #[schema(required, nullable = false)]
    name: Option<String>,
    /// `passwordmanager` or `onepassword`: a 1Password Connect server; `keepass`: a KeePass database. Required.
    #[schema(required, nullable = false)]
    provider_type: Option<String>,
    /// The Connect server's access token, or the database's password; 1 to 8,192 characters. Stored sealed, and never
    /// returned. Required.
    #[schema(required, nullable = false)]
    token: Option<String>,
    /// `passwordmanager`: the base URL of the Connect server. Default: that of the configuration.
    server_url: Option<String>,
    /// `keepass`: the name of a database of the configuration. Required for that type.
    vault: Option<String>,
    /// The lifetime of the cached list of items in seconds, 0 to 86,400. Default: 300.
    cache_ttl_seconds: Option<i64>,
    /// The projects whose keys may log in with the provider, at most 100. Default: none, so that only the
    /// organization's own keys may.
    project_ids: Option<Vec<String>>,
}

/// The changes of a provider; an absent field leaves its value unchanged.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateCredentialProvider)]
pub(crate) struct ProviderChanges {
    /// The new name: 1 to 255 characters, unique in the organization.
    name: Option<String>,
    /// The new token.
    token: Option<String>,
    /// The new URL of the server; requires its `token`.
    server_url: Option<String>,
    /// The new database.
    vault: Option<String>,
    /// The lifetime of the cached list of items in seconds, 0 to 86,400.
    cache_ttl_seconds: Option<i64>,
    /// Whether the provider is searched for logins.
    enabled: Option<bool>,
    /// The position in the order of search, 0 to 1,000; lower is searched first.
    priority: Option<i64>,
    /// The projects whose keys may log in with the provider, replacing the present ones; `[]`: none.
    project_ids: Option<Vec<String>>,
}

from_fields!(ProviderInput => ProviderRequest {
    name, provider_type, token via option, server_url, vault, cache_ttl_seconds, project_ids
});
from_fields!(ProviderChanges => ProviderUpdateRequest {
    name, token via option, server_url, vault, cache_ttl_seconds, enabled, priority, project_ids
});

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Credential providers", "The credential provider does not exist");
    api.post("/org/credential_providers", "create_credential_provider", create_credential_provider)
        .summary("Creates a credential provider with the lowest priority. It is not queried yet.")
        .body::<ProviderInput>()
        .created::<ProviderBody>()
        .refuses([NAME_TAKEN, LIMIT_REACHED]);
    api.get("/org/credential_providers", "list_credential_providers", list_credential_providers)
        .summary("Lists credential providers in the order in which they are queried.")
        .query::<ProviderListParams>()
        .returns_page::<ProviderBody>();
    api.get("/org/credential_providers/{id}", "get_credential_provider", get_credential_provider)
        .summary("Returns a credential provider without its token.")
        .returns::<ProviderBody>();
    api.patch("/org/credential_providers/{id}", "update_credential_provider", update_credential_provider)
        .summary("Updates a credential provider.")
        .body::<ProviderChanges>()
        .returns::<ProviderBody>()
        .refuses([NAME_TAKEN]);
    api.delete("/org/credential_providers/{id}", "delete_credential_provider", delete_credential_provider)
        .summary("Deletes a credential provider with its token.")
        .no_content("Deleted")
        .refuses([("409", "An auth connection names the provider")]);
    api.get("/org/credential_providers/{id}/items", "list_credential_provider_items", list_credential_provider_items)
        .summary("Lists the logins of a provider without their secrets, from a list that is at most `cache_ttl_seconds` old.")
        .returns::<ItemsBody>()
        .refuses([("502", "The provider failed, or refused the token")]);
    api.post("/org/credential_providers/{id}/test", "test_credential_provider", test_credential_provider)
        .summary("Queries which vaults the token of a provider opens.")
        .responds::<TestBody>("200", "The vaults; `success` says whether the provider responded");
}

async fn create_credential_provider(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<ProviderInput>().await?.into();
    let provider = request.services().credential_providers.create(request.organization(), input).await?;
    let body = ProviderBody::from(provider);
    Ok(answer::created(&format!("/org/credential_providers/{}", body.id), &body))
}

/// The filter of a list of credential providers.
#[derive(Deserialize, IntoParams)]
pub(crate) struct ProviderListParams {
    /// Part of the name, or the whole id.
    query: Option<String>,
}

async fn list_credential_providers(request: Request<OrganizationKey>) -> Answer {
    let query = non_empty(request.query::<ProviderListParams>()?.query);
    let found =
        request.services().credential_providers.list(request.organization(), query.as_deref(), request.page()?).await?;
    Ok(answer::list(&found.map(ProviderBody::from)))
}

async fn get_credential_provider(request: Request<OrganizationKey>) -> Answer {
    let provider = request.services().credential_providers.get(request.organization(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ProviderBody::from(provider)))
}

async fn update_credential_provider(mut request: Request<OrganizationKey>) -> Answer {
    let which = request.path("id")?;
    let input = request.json::<ProviderChanges>().await?.into();
    let provider = request.services().credential_providers.update(request.organization(), &which, input).await?;
    Ok(answer::record(StatusCode::OK, &ProviderBody::from(provider)))
}

async fn delete_credential_provider(request: Request<OrganizationKey>) -> Answer {
    request.services().credential_providers.delete(request.organization(), &request.path("id")?).await?;
    Ok(answer::nothing())
}

async fn list_credential_provider_items(request: Request<OrganizationKey>) -> Answer {
    let items = request.services().credential_providers.items(request.organization(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &ItemsBody { items: items.iter().map(ItemBody::from).collect() }))
}

async fn test_credential_provider(request: Request<OrganizationKey>) -> Answer {
    let test = request.services().credential_providers.test(request.organization(), &request.path("id")?).await?;
    Ok(answer::record(StatusCode::OK, &TestBody::from(test)))
}
