//! `casement keys`: manages the API keys of this installation on its host.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use casement_domain::ApiKeyId;
use casement_domain::api_key::{ApiKeys, KeyRequest, masked};
use casement_domain::organization::{Organization, OrganizationRepository};
use casement_domain::page::Page;
use casement_domain::project::ProjectRepository;
use casement_domain::session::IdOrName;
use casement_postgres::{PgApiKeys, PgOrganizations, PgProjects};
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
        KeysCommand::Create { name, project, days, .. } => {
            let project = match project {
                Some(text) => Some(project_id(&projects, &organization, &text).await?),
                None => None,
            };
            let request = KeyRequest { name: Some(name), days_to_expire: days, project };
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
            say(&format!("{}  {scope}  expires {expires}  {}", masked(key.id, &key.last4), key.name))?;
        }
        match found.next_offset {
            Some(offset) => page.offset = offset,
            None => return Ok(()),
        }
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
