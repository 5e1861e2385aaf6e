//! `casement keys`: manages the API keys of this installation on its host.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use casement_domain::ApiKeyId;
use casement_domain::api_key::{ApiKeys, KeyRequest, masked};
use casement_domain::organization::{Organization, OrganizationRepository};
use casement_domain::page::Page;
use casement_domain::permission::{PolicyRequest, StatementRequest};
use casement_domain::project::ProjectRepository;
use casement_domain::session::IdOrName;
use casement_postgres::{PgApiKeys, PgOrganizations, PgProjects};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::settings::KeysCommand;
use crate::store::Store;
use crate::system::System;

/// Runs the command.
pub(crate) async fn run(command: KeysCommand) -> anyhow::Result<()> {
    let settings = match &command {
        KeysCommand::Create { store, .. } | KeysCommand::List { store } | KeysCommand::Revoke { store, .. } => store,
    };
    let beside = Store::open_for(settings).await?;
    let done = run_on(&beside.store, command).await;
    beside.close().await?;
    done
}

async fn run_on(store: &Store, command: KeysCommand) -> anyhow::Result<()> {
    let organizations = PgOrganizations::new(store.database.clone());
    let projects = PgProjects::new(store.database.clone());
    let system = Arc::new(System);
    let keys = ApiKeys::new(Arc::new(PgApiKeys::new(store.database.clone())), system.clone(), system.clone(), system);
    let organization =
        organizations.first().await?.context("there is no organization yet: start `casement serve` once")?;
    match command {
        KeysCommand::Create { name, project, days, expires_at, policy, .. } => {
            let project = match project {
                Some(text) => Some(project_id(&projects, &organization, &text).await?),
                None => None,
            };
            let request = KeyRequest {
                name: Some(name),
                days_to_expire: days,
                expires_at: expires_at.as_deref().map(moment).transpose()?,
                project,
                policy: policy.as_deref().map(policy_request).transpose()?,
            };
            let owner = organizations.owner(organization.id).await?.context("the organization has no owner")?;
            let made = keys.create(organization.id, owner, request).await?;
            say(&made.secret.key_text(made.key.id))
        }
        KeysCommand::List { .. } => list(&keys, &organization).await,
        KeysCommand::Revoke { ids, .. } => {
            for id in ids {
                let id: ApiKeyId = id.parse().context("give the key's id, the 26 characters behind csk_")?;
                keys.revoke(organization.id, id).await?;
                say(&format!("revoked {id}"))?;
            }
            Ok(())
        }
    }
}

fn moment(text: &str) -> anyhow::Result<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).context("--expires-at must be a date-time as 2026-11-20T09:15:00Z")
}

/// The policy of a key, as in the API.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyInput {
    statements: Vec<StatementInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementInput {
    action: String,
    resource: String,
}

fn policy_request(text: &str) -> anyhow::Result<PolicyRequest> {
    let text = casement_cli::read(text, "--policy")?;
    let PolicyInput { statements } = serde_json::from_str(&text).context("--policy is not the JSON of a policy")?;
    let statement = |one: StatementInput| StatementRequest { action: Some(one.action), resource: Some(one.resource) };
    Ok(PolicyRequest { statements: Some(statements.into_iter().map(statement).collect()) })
}

async fn project_id(
    projects: &impl ProjectRepository,
    organization: &Organization,
    text: &str,
) -> anyhow::Result<casement_domain::ProjectId> {
    let found = match IdOrName::parse(text) {
        IdOrName::Id(id) => projects.find(organization.id, id).await?,
        IdOrName::Name(name) => projects.find_by_name(organization.id, &name).await?,
    };
    match found {
        Some(project) => Ok(project.id),
        None => bail!("there is no project {text:?}"),
    }
}

async fn list(keys: &ApiKeys, organization: &Organization) -> anyhow::Result<()> {
    let mut page = Page { limit: Page::MAX_LIMIT, offset: 0 };
    loop {
        let found = keys.list(organization.id, page).await?;
        for key in found.items {
            let expires = key.expires_at.map(|at| at.format(&Rfc3339)).transpose()?.unwrap_or_else(|| "never".into());
            let scope = key.project.map_or_else(|| "organization".into(), |project| format!("project {project}"));
            // A label contains no control characters, so it cannot control a terminal.
            let policy = key.policy.map_or_else(
                || "everything".into(),
                |policy| policy.statements().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            );
            let policy = if policy.is_empty() { "nothing".to_owned() } else { policy };
            let key_text = masked(key.id, &key.last4);
            say(&format!("{key_text}  {scope}  {policy}  expires {expires}  {}", key.name))?;
        }
        match found.next_offset {
            Some(offset) => page.offset = offset,
            None => return Ok(()),
        }
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    casement_cli::write_out(format!("{line}\n").as_bytes())
}
