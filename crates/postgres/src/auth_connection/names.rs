//! The credential or credential provider that a connection refers to by name: checked when the connection is stored,
//! and updated when it is renamed.

use casement_domain::auth_connection::CredentialRef;
use casement_domain::{CredentialProviderId, OrganizationId, ProjectId};
use diesel::dsl::exists;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use uuid::Uuid;

use crate::column::Column;
use crate::error::CallError;
use crate::schema::{auth_connections, credential_providers, credentials, projects};

/// Locks the credential or provider that a connection of the project refers to, so that it is neither deleted nor
/// renamed before the connection is stored. Returns whether it exists.
pub(super) async fn lock(
    connection: &mut AsyncPgConnection,
    project: Column<ProjectId>,
    named: &CredentialRef,
) -> Result<bool, CallError> {
    let held: Option<Uuid> = match named {
        CredentialRef::Named(name) => {
            let row = credentials::table.filter(credentials::project_id.eq(project)).filter(credentials::name.eq(name));
            row.select(credentials::id).for_share().get_result(connection).await.optional()?
        }
        // No provider is named, so none needs to be locked.
        CredentialRef::AutoAny => return Ok(true),
        CredentialRef::Item { provider, .. } | CredentialRef::Auto { provider } => {
            let owner: Uuid =
                projects::table.find(project).select(projects::organization_id).get_result(connection).await?;
            let rows = credential_providers::table.filter(credential_providers::organization_id.eq(owner));
            let rows = rows.select(credential_providers::id).for_share();
            match provider.parse::<CredentialProviderId>() {
                Ok(id) => rows.filter(credential_providers::id.eq(Column(id))).get_result(connection).await,
                Err(_) => rows.filter(credential_providers::name.eq(provider)).get_result(connection).await,
            }
            .optional()?
        }
    };
    Ok(held.is_some())
}

/// Whether a connection of the organization refers to the provider, which the caller has locked, by its name or id.
pub(crate) async fn provider_is_named(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    (id, name): (CredentialProviderId, &str),
) -> Result<bool, CallError> {
    let ours = projects::table.filter(projects::organization_id.eq(Column(organization))).select(projects::id);
    let id = id.to_string();
    let naming = auth_connections::table.filter(auth_connections::credential_provider.eq_any([&*id, name]));
    let naming = naming.filter(auth_connections::project_id.eq_any(ours));
    Ok(diesel::select(exists(naming)).get_result(connection).await?)
}

/// Replaces the old name of a provider with the new one in the connections of the organization.
pub(crate) async fn provider_renamed(
    connection: &mut AsyncPgConnection,
    organization: OrganizationId,
    (before, now): (&str, &str),
) -> Result<(), CallError> {
    let ours = projects::table.filter(projects::organization_id.eq(Column(organization))).select(projects::id);
    let naming = auth_connections::table.filter(auth_connections::credential_provider.eq(before));
    let naming = naming.filter(auth_connections::project_id.eq_any(ours));
    diesel::update(naming).set(auth_connections::credential_provider.eq(now)).execute(connection).await?;
    Ok(())
}

/// Replaces the old name of a credential with the new one in the connections of the project.
pub(crate) async fn credential_renamed(
    connection: &mut AsyncPgConnection,
    project: Column<ProjectId>,
    (before, now): (&str, &str),
) -> Result<(), CallError> {
    let naming = auth_connections::table.filter(auth_connections::project_id.eq(project));
    let naming = naming.filter(auth_connections::credential_name.eq(before));
    diesel::update(naming).set(auth_connections::credential_name.eq(now)).execute(connection).await?;
    Ok(())
}
