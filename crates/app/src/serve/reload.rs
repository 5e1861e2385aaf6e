//! Applies changed settings while the server runs, after the signal SIGHUP.

use std::sync::Arc;

use casement_domain::organization::OrganizationRepository;
use casement_http::ServerCertificate;
use clap::ArgMatches;
use tracing::{info, warn};

use crate::causes::with_causes;
use crate::first_start;
use crate::jobs::log_reload;
use crate::settings;

/// The settings that take effect without a new start.
const RELOADED: [&str; 3] = ["max_concurrent_sessions", "max_pooled_sessions", "max_concurrent_invocations"];

/// What a reload changes.
pub(super) struct Reload {
    certificate: Option<ServerCertificate>,
    organizations: Arc<dyn OrganizationRepository>,
    /// The settings at the start of the server, and at the last reload; `None` if they cannot be read again.
    settings: Option<(ArgMatches, ArgMatches)>,
}

impl Reload {
    pub(super) fn new(certificate: Option<ServerCertificate>, organizations: Arc<dyn OrganizationRepository>) -> Self {
        let settings = settings::read_serve_again().map(|(matches, _)| (matches.clone(), matches)).ok();
        Self { certificate, organizations, settings }
    }

    /// Reads the certificate and the configuration file again. Reports settings that need a new start by name.
    pub(super) async fn run(&mut self) {
        info!("SIGHUP: reading the certificate and the configuration file again");
        if let Some(certificate) = &self.certificate {
            log_reload(certificate.reload());
        }
        let (matches, settings) = match settings::read_serve_again() {
            Ok(read) => read,
            Err(error) => {
                return warn!(error = with_causes(&error), "the settings cannot be read; nothing of them was changed");
            }
        };
        if let Err(error) = first_start::set_limits(&*self.organizations, &settings.limits).await {
            warn!(error = with_causes(&error), "the limits cannot be stored");
        }
        if let Some((started, last)) = &mut self.settings {
            let is_reloaded = |name: &&str| RELOADED.contains(name);
            let now: Vec<&str> = changed(last, &matches).into_iter().filter(is_reloaded).collect();
            let later: Vec<&str> = changed(started, &matches).into_iter().filter(|name| !is_reloaded(name)).collect();
            if !now.is_empty() {
                info!(settings = now.join(", "), "settings in effect from now on");
            }
            if !later.is_empty() {
                warn!(settings = later.join(", "), "settings that take effect at the next start of the server");
            }
            *last = matches;
        }
    }
}

/// Returns the names of the settings that differ.
fn changed<'a>(before: &'a ArgMatches, after: &'a ArgMatches) -> Vec<&'a str> {
    let values = |matches: &'a ArgMatches, id: &str| {
        matches.get_raw(id).map(|values| values.map(ToOwned::to_owned).collect::<Vec<_>>()).unwrap_or_default()
    };
    let mut names: Vec<&str> = before.ids().chain(after.ids()).map(clap::Id::as_str).collect();
    names.sort_unstable();
    names.dedup();
    // A group of settings has an identifier too, without values of its own.
    names.retain(|id| values(before, id) != values(after, id));
    names
}
