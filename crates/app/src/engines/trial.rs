//! Tries each configured WebDriver server for real.

use casement_domain::{BrowserId, IdSource as _};

use super::grids::engine;
use crate::causes::with_causes;
use crate::settings::GridServer;
use crate::system::System;

/// The result of the trial of one server: its name, what was found, and the remedy if it failed.
pub(crate) struct Trial {
    pub(crate) name: String,
    pub(crate) found: Result<String, String>,
    pub(crate) remedy: &'static str,
}

/// Starts a browser at each server, drives it, and ends it.
pub(crate) async fn try_each(servers: Vec<GridServer>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for server in servers {
        let name = format!("engine {}", server.name);
        trials.push(match tried(server).await {
            Ok(found) => Trial { name, found: Ok(found), remedy: "" },
            Err((why, remedy)) => Trial { name, found: Err(why), remedy },
        });
    }
    trials
}

async fn tried(server: GridServer) -> Result<String, (String, &'static str)> {
    // No running server has this mark, so none ends the session of the trial.
    let (browser, owner) = (BrowserId::from_ulid(System.next()), System.next().to_string());
    let engine = engine(server, &owner).map_err(|error| (with_causes(&error), "correct the setting"))?;
    let checked = engine.check(browser).await.map_err(|failed| (failed.to_string(), failed.remedy()))?;
    let places = checked.status.nodes.map(|nodes| format!(", {} of {} places free", nodes.free, nodes.chrome));
    let downloads = if checked.has_downloads { "" } else { ", without downloads" };
    let version = checked.browser_version;
    Ok(format!("Chrome {version} answered over CDP, BiDi and WebDriver{}{downloads}", places.unwrap_or_default()))
}
