//! Builds and runs the apps that callers deploy.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use casement_chromium::EngineConfig;
use casement_domain::blob::BlobStore;
use casement_runner::{AppBuilder, AppRunnerConfig, AppRunnerPool, Packages};
use tracing::warn;

use crate::data_dir::DataDir;
use crate::egress::SandboxEgress;
use crate::settings::BuildSettings;
use crate::system::System;

/// The parts that check, build and run deployments.
pub(crate) struct LocalAppRuntime {
    pub(crate) packages: Arc<Packages>,
    pub(crate) app_runtime: Arc<AppBuilder>,
    pub(crate) runner_pool: Arc<AppRunnerPool>,
}

/// Creates the parts, and ends the remaining sandboxes of builds of a previous server process.
///
/// # Errors
/// If sandboxes are impossible, or a directory cannot be created.
pub(crate) async fn open(
    settings: &BuildSettings,
    data_dir: &DataDir,
    engine: &EngineConfig,
    blobs: Arc<dyn BlobStore>,
    sandbox_egress: Arc<SandboxEgress>,
) -> anyhow::Result<LocalAppRuntime> {
    let config = config(settings, data_dir.path(), engine)?;
    let system = Arc::new(System);
    let impossible = "apps cannot be run here; see casement doctor";
    let app_runtime = AppBuilder::new(config.clone(), blobs, sandbox_egress.clone(), system.clone(), system.clone());
    let app_runtime = Arc::new(app_runtime.context(impossible)?);
    app_runtime.sweep().await;
    let runner_pool =
        AppRunnerPool::new(config, &app_runtime, sandbox_egress, system.clone(), system).context(impossible)?;
    let packages = Packages::new(data_dir.path().to_owned());
    Ok(LocalAppRuntime { packages: Arc::new(packages), app_runtime, runner_pool: Arc::new(runner_pool) })
}

fn config(settings: &BuildSettings, data_dir: &Path, engine: &EngineConfig) -> anyhow::Result<AppRunnerConfig> {
    let apps = data_dir.join("apps");
    make_passable(&apps).with_context(|| format!("cannot make {}", apps.display()))?;
    let mut config = AppRunnerConfig::discover(apps, engine.program.clone(), vec!["inside".to_owned()]);
    (config.uid_base, config.uid_count) = (engine.uid_base, engine.uid_count);
    config.node = engine.node();
    if config.node.is_none() || config.npm.is_none() {
        warn!("no script runner or no npm: Node apps cannot be built; see casement doctor");
    }
    let named = [&settings.pip_index, &settings.npm_registry].into_iter().flatten();
    let places = named.filter_map(|url| Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?)));
    config.registries.extend(places.chain(settings.build_registries.iter().cloned()));
    config.pip_index = settings.pip_index.as_ref().map(ToString::to_string);
    config.npm_registry = settings.npm_registry.as_ref().map(ToString::to_string);
    Ok(config)
}

/// Creates a directory that sandboxes' users can pass through but not list.
fn make_passable(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o711))
}
