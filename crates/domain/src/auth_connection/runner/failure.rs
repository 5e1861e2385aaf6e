//! The failures of pages that cannot be read, acted on or understood, and of sites that refuse a login.

use time::Duration;
use url::Url;

use super::login::MAX_UNPRODUCTIVE;
use super::session::ended;
use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::auth_connection::{Flow, FlowError, FlowEvent, FlowFailure};
use crate::browser::EngineError;
use crate::ids::BrowserId;
use crate::login_page::{LoginPageError, Refusal, RefusalKind};

/// The pause after a reading or an action that failed.
const RETRY_BACKOFF: Duration = Duration::milliseconds(500);

impl FlowRunner {
    /// Stores a picture for the operator, and fails the flow.
    pub(super) async fn not_understood(&self, browser: BrowserId, flow: &Flow, url: &str) -> Outcome {
        if let Ok(png) = self.deps.pages.screenshot(browser).await {
            self.deps.pictures.keep(flow.id, png).await;
        }
        let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let message = format!("the page at {host} was not recognized; a screenshot is stored for the operator");
        FlowFailure::new(FlowError::PageNotUnderstood, message).into()
    }

    /// Retries or fails after a page could not be read or acted on.
    pub(super) async fn page_failed(
        &self,
        browser: BrowserId,
        flow: &Flow,
        phase: &mut PagePhase,
        error: LoginPageError,
    ) -> Outcome {
        match error {
            // The egress proxy ended with the node that ran the login before, which aborted the loading page.
            LoginPageError::NavigationFailed { .. }
                if phase.is_taken_over() && flow.begun_again < Flow::MAX_BEGUN_AGAIN =>
            {
                phase.apply(PageEvent::Lost);
                return self.changed(flow, FlowEvent::BegunAgain(flow.session));
            }
            LoginPageError::NavigationFailed { .. } => {
                return FlowFailure::new(FlowError::NavigationFailed, error.to_string()).into();
            }
            // The page navigated to another origin after it was read.
            LoginPageError::WrongOrigin { .. } => {
                return FlowFailure::new(FlowError::DomainNotAllowed, error.to_string()).into();
            }
            LoginPageError::Engine(EngineError::NotRunning(_)) => return ended().into(),
            LoginPageError::Stale(_)
            | LoginPageError::NotUsable(_)
            | LoginPageError::Hangs { .. }
            | LoginPageError::Engine(_) => {}
        }
        phase.apply(PageEvent::Failed);
        if phase.unproductive().max(phase.failed_actions()) < MAX_UNPRODUCTIVE {
            return Outcome::Unchanged(Next::Wait(self.now() + RETRY_BACKOFF));
        }
        match error {
            LoginPageError::Hangs { .. } => FlowFailure::new(FlowError::NavigationFailed, error.to_string()).into(),
            LoginPageError::Engine(_) => FlowFailure::new(FlowError::BrowserEnded, error.to_string()).into(),
            _ => self.not_understood(browser, flow, "").await,
        }
    }
}

/// Returns the failure of a site that refuses the login and offers no further step.
pub(super) fn refused(refusal: &Refusal) -> Outcome {
    let code = match refusal.kind {
        RefusalKind::SiteFailed => FlowError::NavigationFailed,
        RefusalKind::Rejected
        | RefusalKind::CodeRejected
        | RefusalKind::Locked
        | RefusalKind::RateLimited
        | RefusalKind::Other => FlowError::CredentialsRejected,
    };
    let failure = FlowFailure::new(code, format!("the site said: {}", refusal.website_error));
    Outcome::Failed { failure, website_error: Some(refusal.website_error.clone()) }
}

/// Returns the failure of a login that reached a host that is not allowed.
pub(super) fn not_allowed(host: &str) -> FlowFailure {
    let message = format!("the login went to {host}, which is not among the allowed domains");
    FlowFailure::new(FlowError::DomainNotAllowed, message)
}
