//! The page of a flow that waits for a person, who may act on it in the live view, or elsewhere.

use super::login::CAPTCHA;
use super::{FlowRunner, Next, Outcome, PageEvent, PagePhase};
use crate::auth_connection::{Flow, FlowEvent, FlowRequirement, FlowStep};
use crate::ids::BrowserId;
use crate::login_page::{LoginPageError, PageQuestion, Reading, Understanding};

/// The maximum number of times that an external action replaces another, because a page may change its text endlessly.
const MAX_EXTERNAL_UPDATES: u32 = 50;
/// The number of readings in a row of another, unsettled page at which the page counts as changed.
const MAX_UNSETTLED: u32 = 3;

impl FlowRunner {
    pub(super) async fn watch(
        &self,
        flow: &Flow,
        phase: &mut PagePhase,
        browser: BrowserId,
        (reading, understood): (&Reading, Understanding),
    ) -> Result<Outcome, LoginPageError> {
        if !matches!(phase, PagePhase::Waiting { live_view_input: true, .. }) {
            // A person who sees the page must not be able to reveal values that were typed before.
            let emptied = self.empty_passwords(browser, reading).await?;
            self.set_live_view_input(flow, phase, emptied);
        }
        if flow.step == FlowStep::AwaitingExternalAction
            && let Some(updated) = self.updated_external_action(flow, phase, &understood)
        {
            return Ok(updated);
        }
        Ok(self.watched(flow, phase, reading, &understood))
    }

    /// Returns the change of a flow whose page shows another external action, or another number to compare. Such a page
    /// polls its server and never settles.
    fn updated_external_action(
        &self,
        flow: &Flow,
        phase: &mut PagePhase,
        understood: &Understanding,
    ) -> Option<Outcome> {
        let current = flow.external_action.as_deref();
        match understood {
            Understanding::External(external) if current != Some(&*external.message) => match phase {
                PagePhase::Waiting { external_updates, .. } if *external_updates < MAX_EXTERNAL_UPDATES => {
                    phase.apply(PageEvent::ExternalUpdated);
                    Some(self.external_action(flow, external))
                }
                _ => None,
            },
            Understanding::Captcha { kind } if current != Some(CAPTCHA) => Some(self.captcha(flow, kind)),
            _ => None,
        }
    }

    /// Continues to wait if the page is the same; else the flow reads the page anew.
    fn watched(&self, flow: &Flow, phase: &mut PagePhase, reading: &Reading, understood: &Understanding) -> Outcome {
        let wait = Outcome::Unchanged(Next::Wait((self.now() + Self::WATCH_INTERVAL).min(flow.expires_at)));
        let waits_elsewhere = flow.step == FlowStep::AwaitingExternalAction;
        let requested: Vec<&String> =
            flow.fields.iter().map(|field| &field.id).chain(flow.choices.iter().map(|choice| &choice.id)).collect();
        let shown: Vec<&String> = match understood {
            Understanding::Fields(question) | Understanding::Choices(question) => keys(question).collect(),
            _ => Vec::new(),
        };
        let same = match understood {
            Understanding::Fields(question) | Understanding::Choices(question) => {
                if waits_elsewhere {
                    question.captcha.is_some()
                } else {
                    shown == requested
                }
            }
            Understanding::External(_) | Understanding::Captcha { .. } => waits_elsewhere,
            Understanding::Busy | Understanding::NotUnderstood => true,
            Understanding::LoggedIn { .. }
            | Understanding::Refused(_)
            | Understanding::Step(_)
            | Understanding::NotAllowed { .. } => false,
        };
        let unsettled = !same && !reading.settled;
        phase.apply(PageEvent::Watched { unsettled });
        // A loading page differs for a moment only. A page that never settles counts as changed.
        let may_settle = matches!(phase, PagePhase::Waiting { unsettled: 1..MAX_UNSETTLED, .. });
        if same || may_settle {
            return wait;
        }
        phase.apply(PageEvent::MovedOn);
        let Ok(mut next) = flow.on(FlowEvent::MovedOn, self.now()) else { return wait };
        next.progress.external |= waits_elsewhere;
        // Counted, so that a page that changes endlessly ends the flow.
        next.acts += 1;
        // A person who answered in the live view is needed for the next login too. A change by itself is no answer.
        let changed_by_itself = matches!(understood, Understanding::Step(_) | Understanding::Captcha { .. });
        let answered = !waits_elsewhere && !changed_by_itself && !requested.iter().any(|id| shown.contains(id));
        if answered && !next.needs.contains(&FlowRequirement::External) {
            next.needs.push(FlowRequirement::External);
        }
        Outcome::Changed(Box::new(next))
    }
}

fn keys(question: &PageQuestion) -> impl Iterator<Item = &String> {
    question.fields.iter().map(|field| &field.key).chain(question.choices.iter().map(|choice| &choice.key))
}
