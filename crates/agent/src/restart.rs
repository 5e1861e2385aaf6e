//! `POST /v1/restart`: checks a restart before anything changes, and queues it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::extension::Extensions;
use crate::flags;
use crate::profile::Profiles;
use crate::reply::{Answer, Refusal, ok};
use crate::restart_queue::{RestartKind, RestartQueue};
use casement_agent_protocol::extension::{MAX_EXTENSIONS, RestartRequest};
use casement_agent_protocol::{ErrorCode, MAX_SIDE, Viewport};

/// The operation that restarts Chromium.
#[derive(Debug)]
pub(crate) struct RestartOperation {
    pub(crate) queue: RestartQueue,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) profiles: Arc<Profiles>,
    /// Chromium's binary.
    pub(crate) chromium: PathBuf,
}

impl RestartOperation {
    /// Restarts Chromium and answers with the new status.
    pub(crate) async fn serve(&self, request: RestartRequest) -> Answer {
        self.check(&request).await?;
        ok(&self.queue.run(RestartKind::Restart(request)).await?)
    }

    async fn check(&self, request: &RestartRequest) -> Result<(), Refusal> {
        request.viewport.map_or(Ok(()), check_size)?;
        if let Some(locale) = request.location.as_ref().and_then(|location| location.locale.as_ref())
            && !flags::language_file(&self.chromium, locale).is_file()
        {
            let message = format!("the browser has no files for the locale {locale}");
            return Err(Refusal::new(ErrorCode::OutOfRange, message));
        }
        let names = &request.extensions;
        if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
            return Err(Refusal::new(ErrorCode::BadRequest, "an extension is named twice"));
        }
        if let Some(unknown) = names.iter().find(|name| !self.extensions.is_pending(name)) {
            return Err(Refusal::new(ErrorCode::Missing, format_args!("no extension {unknown} was added")));
        }
        if request.profile && !self.profiles.is_pending().await {
            return Err(Refusal::new(ErrorCode::Missing, "no profile was loaded"));
        }
        if self.extensions.with_added(names).len() > MAX_EXTENSIONS {
            let message = format!("a session has at most {MAX_EXTENSIONS} extensions");
            return Err(Refusal::new(ErrorCode::LimitReached, message));
        }
        Ok(())
    }
}

/// Checks that the sides of a viewport are in range.
pub(crate) fn check_size(viewport: Viewport) -> Result<(), Refusal> {
    if [viewport.width, viewport.height].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        return Ok(());
    }
    let message = format!("width and height must be between 1 and {MAX_SIDE}");
    Err(Refusal::new(ErrorCode::OutOfRange, message))
}
