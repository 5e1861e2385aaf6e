//! The repository of sessions.

use async_trait::async_trait;
use casement_domain::browser::{Browser, BrowserEvent, Location, Viewport};
use casement_domain::network::{AllowlistChange, AllowlistError, Network};
use casement_domain::organization::CapacityRequest;
use casement_domain::page::{Listed, Page};
use casement_domain::profile::LoadedProfile;
use casement_domain::session::{
    Created, EndReason, IdOrName, Session, SessionFilter, SessionRepository, SessionState, SessionUpdate, StatusFilter,
};
use casement_domain::telemetry::Capture;
use casement_domain::{
    BrowserId, InvocationId, NodeId, OrganizationId, PoolId, ProjectId, ProxyId, Replaced, SessionId, StoreError,
};
use time::OffsetDateTime;

use crate::{Memory, contains};

fn matches(row: &Session, filter: &SessionFilter) -> bool {
    let had_a_caller = match row.state {
        SessionState::Starting => false,
        SessionState::Active => true,
        SessionState::Ended(reason) => !matches!(reason, EndReason::StartFailed | EndReason::Undelivered),
    };
    let in_status = match filter.status {
        StatusFilter::Active => row.is_active(),
        StatusFilter::Deleted => !row.is_active(),
        StatusFilter::All => true,
    };
    let pool = row.pool.as_ref().and_then(|pool| pool.name.as_ref());
    let in_query = filter.query.as_ref().is_none_or(|query| {
        let names = [row.name.as_ref().map(|name| name.as_str()), pool.map(|name| name.as_str())];
        row.id.to_string() == *query || names.into_iter().flatten().any(|name| contains(name, query))
    });
    let has_tags = filter.tags.iter().all(|(key, value)| row.tags.as_map().get(key) == Some(value));
    had_a_caller && in_status && in_query && has_tags
}

#[async_trait]
impl SessionRepository for Memory {
    async fn create(
        &self,
        _organization: OrganizationId,
        session: &Session,
        browser: Option<Browser>,
    ) -> Result<Created, StoreError> {
        let mut state = self.state();
        if state.is_taken(session) {
            return Ok(Created::NameTaken);
        }
        if let Err(limit) = state.admit(&self.caps, CapacityRequest::Session { places: session.shape.places() }) {
            return Ok(Created::LimitExceeded(limit));
        }
        state.sessions.insert(session.id, session.clone());
        state.browsers.extend(browser.map(|row| (row.id, row)));
        Ok(Created::Yes)
    }

    async fn activate(&self, current: &Session, next: &Session, browser: &Browser) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        match state.sessions.get_mut(&current.id).filter(|row| row.state == current.state) {
            Some(row) => *row = next.clone(),
            None => return Ok(Replaced::LostRace),
        }
        state.browsers.insert(browser.id, browser.clone());
        Ok(Replaced::Yes)
    }

    async fn end(&self, current: &Session, next: &Session) -> Result<Replaced, StoreError> {
        let mut state = self.state();
        match state.sessions.get_mut(&current.id).filter(|row| row.state == current.state) {
            Some(row) => *row = next.clone(),
            None => return Ok(Replaced::LostRace),
        }
        let undelivered = next.state == SessionState::Ended(EndReason::Undelivered);
        match (next.browser, &next.pool, next.ended_at) {
            (Some(browser), Some(pool), Some(now)) if undelivered => {
                state.browser_on(browser, BrowserEvent::GiveBack);
                state.grant(pool.id, now);
            }
            (Some(browser), _, _) => {
                state.browser_on(browser, BrowserEvent::End);
            }
            _ => {}
        }
        Ok(Replaced::Yes)
    }

    async fn find(&self, id: SessionId) -> Result<Option<Session>, StoreError> {
        Ok(self.state().sessions.get(&id).cloned())
    }

    async fn find_in_project(
        &self,
        project: ProjectId,
        which: &IdOrName<SessionId>,
        include_ended: bool,
    ) -> Result<Option<Session>, StoreError> {
        let fits = |row: &&Session| {
            let named = match which {
                IdOrName::Id(id) => row.id == *id,
                IdOrName::Name(name) => row.name.as_ref().is_some_and(|own| own.as_str() == name),
            };
            named && row.project == project && (row.is_active() || include_ended)
        };
        Ok(self.state().sessions.values().rev().find(fits).cloned())
    }

    async fn count_named(&self, project: ProjectId, name: &str) -> Result<u64, StoreError> {
        let is_named =
            |row: &&Session| row.project == project && row.name.as_ref().is_some_and(|own| own.as_str() == name);
        Ok(self.state().sessions.values().filter(is_named).count() as u64)
    }

    async fn of_browser(&self, browser: BrowserId) -> Result<Option<Session>, StoreError> {
        let state = self.state();
        Ok(state.sessions.values().find(|row| row.browser == Some(browser) && row.ended_at.is_none()).cloned())
    }

    async fn of_node(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let state = self.state();
        Ok(state.sessions.values().filter(|row| row.node == node && row.ended_at.is_none()).cloned().collect())
    }

    async fn of_invocation(&self, invocation: InvocationId) -> Result<Vec<Session>, StoreError> {
        let of_invocation = |row: &&Session| row.ended_at.is_none() && row.invocation == Some(invocation);
        Ok(self.state().sessions.values().filter(of_invocation).cloned().collect())
    }

    async fn of_pool(&self, pool: PoolId) -> Result<Vec<Session>, StoreError> {
        let leased = |row: &&Session| row.is_active() && row.pool.as_ref().is_some_and(|from| from.id == pool);
        Ok(self.state().sessions.values().filter(leased).cloned().collect())
    }

    async fn of_deleted_pools(&self, node: NodeId) -> Result<Vec<Session>, StoreError> {
        let state = self.state();
        let of_node = state.sessions.values().filter(|row| row.is_active() && row.node == node);
        let orphans = of_node.filter(|row| row.pool.as_ref().is_some_and(|from| !state.pools.contains_key(&from.id)));
        Ok(orphans.cloned().collect())
    }

    async fn list(
        &self,
        project: ProjectId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Listed<Session>, StoreError> {
        let state = self.state();
        let matching = state.sessions.values().rev().filter(|row| row.project == project && matches(row, filter));
        let from = usize::try_from(page.offset).unwrap_or(usize::MAX);
        Ok(page.cut(matching.skip(from).take(page.limit as usize + 1).cloned().collect()))
    }

    async fn change(&self, id: SessionId, changes: &SessionUpdate) -> Result<Option<Created>, StoreError> {
        let mut state = self.state();
        let Some(mut row) = state.sessions.get(&id).filter(|row| row.is_active()).cloned() else { return Ok(None) };
        row.name = changes.name.clone().unwrap_or(row.name);
        row.tags = changes.tags.clone().unwrap_or(row.tags);
        if state.is_taken(&row) {
            return Ok(Some(Created::NameTaken));
        }
        state.sessions.insert(id, row);
        Ok(Some(Created::Yes))
    }

    async fn set_viewport(&self, id: SessionId, viewport: Viewport) -> Result<(), StoreError> {
        if let Some(row) = self.state().sessions.get_mut(&id) {
            row.shape.viewport = viewport;
        }
        Ok(())
    }

    async fn set_proxy(&self, id: SessionId, proxy: Option<ProxyId>) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active());
        Ok(row.map(|row| row.shape.proxy = proxy).is_some())
    }

    async fn set_location(&self, id: SessionId, location: Location) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active());
        Ok(row.map(|row| row.shape.location = location).is_some())
    }

    async fn change_allowlist(
        &self,
        id: SessionId,
        change: &AllowlistChange,
    ) -> Result<Option<Result<Network, AllowlistError>>, StoreError> {
        let mut state = self.state();
        let Some(row) = state.sessions.get_mut(&id).filter(|row| row.is_active()) else { return Ok(None) };
        let changed = row.shape.network.clone().unwrap_or_default().changed(change);
        if let Ok(network) = &changed {
            row.shape.network = Some(network.clone());
        }
        Ok(Some(changed))
    }

    async fn set_profile(&self, id: SessionId, profile: LoadedProfile) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active() && row.shape.profile.is_none());
        Ok(row.map(|row| row.shape.profile = Some(profile)).is_some())
    }

    async fn set_telemetry(&self, id: SessionId, telemetry: Option<Capture>) -> Result<bool, StoreError> {
        let mut state = self.state();
        let row = state.sessions.get_mut(&id).filter(|row| row.is_active());
        Ok(row.map(|row| row.telemetry = telemetry).is_some())
    }

    async fn note_ignored_fields(&self, id: SessionId, fields: &[String]) -> Result<(), StoreError> {
        self.state().ignored_fields.insert(id, fields.to_vec());
        Ok(())
    }

    async fn ignored_fields(&self, id: SessionId) -> Result<Vec<String>, StoreError> {
        Ok(self.state().ignored_fields.get(&id).cloned().unwrap_or_default())
    }

    async fn note_activity(&self, activity: &[(SessionId, OffsetDateTime)]) -> Result<(), StoreError> {
        let mut state = self.state();
        for (id, at) in activity {
            if let Some(row) = state.sessions.get_mut(id) {
                row.last_active_at = row.last_active_at.max(*at);
            }
        }
        Ok(())
    }

    async fn forget(&self, before: OffsetDateTime, max: u32) -> Result<usize, StoreError> {
        let mut state = self.state();
        let mut old: Vec<_> =
            state.sessions.values().filter_map(|row| Some((row.ended_at.filter(|at| *at < before)?, row.id))).collect();
        old.sort_unstable();
        old.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        for (_, id) in &old {
            state.sessions.remove(id);
            state.ignored_fields.remove(id);
        }
        Ok(old.len())
    }
}
