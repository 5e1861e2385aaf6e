//! The records of deployments and apps. Environment variables are returned without their values.

use std::collections::BTreeMap;

use casement_domain::deployment::{AppVersion, Deployment, DeploymentSource, ListedApp};
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema};

/// A deployment.
#[derive(Serialize, ToSchema)]
#[schema(as = Deployment)]
pub(crate) struct DeploymentBody {
    id: String,
    /// `queued`, `in_progress`, `running`, `failed` or `stopped`.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<String>,
    region: String,
    /// The path of the file that is loaded, relative to the source code.
    entrypoint_rel_path: String,
    /// The names of the environment variables, with empty values.
    env_vars: BTreeMap<String, &'static str>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// `file` or `github`.
    source_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_url: Option<String>,
    /// The requested branch, tag or commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ref: Option<String>,
    /// The directory of the source code in the repository; absent for the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_path: Option<String>,
    /// SHA-256 of the source's archive, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_checksum: Option<String>,
}

fn redacted(names: impl IntoIterator<Item = String>) -> BTreeMap<String, &'static str> {
    names.into_iter().map(|name| (name, "")).collect()
}

impl DeploymentBody {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl From<Deployment> for DeploymentBody {
    fn from(deployment: Deployment) -> Self {
        let (source_type, source_url, source_ref, source_path) = match deployment.source {
            DeploymentSource::File => ("file", None, None, None),
            DeploymentSource::Git { url, git_ref, path } => {
                ("github", Some(url.to_string()), Some(git_ref), path.map(|path| path.to_string()))
            }
        };
        Self {
            id: deployment.id.to_string(),
            status: deployment.status.as_str(),
            status_reason: deployment.status_reason,
            region: deployment.region,
            entrypoint_rel_path: deployment.entrypoint.path().to_string(),
            env_vars: redacted(deployment.env_names),
            created_at: Moment(deployment.created_at),
            updated_at: Moment(deployment.updated_at),
            source_type,
            source_url,
            source_ref,
            source_path,
            source_checksum: deployment.source_checksum,
        }
    }
}

/// An action of an app.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppAction {
    name: String,
    /// Always absent: the frameworks declare no schema.
    #[schema(value_type = Option<Object>)]
    input_schema: Option<()>,
    #[schema(value_type = Option<Object>)]
    output_schema: Option<()>,
}

fn actions(app: &AppVersion) -> Vec<AppAction> {
    let action = |name: &casement_domain::name::LabelName| AppAction {
        name: name.as_str().to_owned(),
        input_schema: None,
        output_schema: None,
    };
    app.actions.iter().map(action).collect()
}

/// An app at one version.
#[derive(Serialize, ToSchema)]
#[schema(as = App)]
pub(crate) struct AppBody {
    id: String,
    app_name: String,
    version: String,
    /// The id of the deployment that registered the app.
    deployment: String,
    region: String,
    actions: Vec<AppAction>,
    /// The names of the environment variables, with empty values.
    env_vars: BTreeMap<String, &'static str>,
}

impl From<ListedApp> for AppBody {
    fn from(ListedApp { app, env_names }: ListedApp) -> Self {
        Self {
            id: app.id.to_string(),
            app_name: app.name.as_str().to_owned(),
            version: app.version.clone(),
            deployment: app.deployment.to_string(),
            region: app.region.clone(),
            actions: actions(&app),
            env_vars: redacted(env_names),
        }
    }
}

/// An app in the events of its deployment.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppSummaryBody {
    #[schema(value_type = String, format = DateTime)]
    timestamp: Moment,
    id: String,
    app_name: String,
    version: String,
    region: String,
    actions: Vec<AppAction>,
}

impl From<AppVersion> for AppSummaryBody {
    fn from(app: AppVersion) -> Self {
        Self {
            timestamp: Moment(app.created_at),
            id: app.id.to_string(),
            app_name: app.name.as_str().to_owned(),
            actions: actions(&app),
            version: app.version,
            region: app.region,
        }
    }
}
