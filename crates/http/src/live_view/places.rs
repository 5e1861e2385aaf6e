//! The open live views of this node's sessions.

use std::{collections::HashMap, sync::Arc};

use casement_domain::{
    SessionId,
    live_view::{OpenViews, TooManyViews},
};
use parking_lot::Mutex;

type OpenBySession = HashMap<SessionId, OpenViews>;

/// The open live views by session. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewPlaces(Arc<Mutex<OpenBySession>>);

/// The place of one live view, until it is dropped.
#[derive(Debug)]
pub(crate) struct ViewPlace {
    places: ViewPlaces,
    session: SessionId,
    may_act: bool,
}

impl ViewPlaces {
    /// Takes a place.
    ///
    /// # Errors
    /// [`TooManyViews`].
    pub(crate) fn take(&self, session: SessionId, may_act: bool) -> Result<ViewPlace, TooManyViews> {
        self.0.lock().entry(session).or_default().open(may_act)?;
        Ok(ViewPlace { places: self.clone(), session, may_act })
    }
}

impl Drop for ViewPlace {
    fn drop(&mut self) {
        let mut open = self.places.0.lock();
        let Some(views) = open.get_mut(&self.session) else { return };
        views.close(self.may_act);
        if views.is_empty() {
            open.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::session_id;

    use super::*;

    #[test]
    fn each_session_has_places_of_its_own_and_a_dropped_place_is_free() {
        let places = ViewPlaces::default();
        let mut taken: Vec<ViewPlace> = Vec::new();
        while let Ok(place) = places.take(session_id(1), false) {
            taken.push(place);
        }
        assert!(places.take(session_id(2), false).is_ok());
        assert!(places.take(session_id(1), true).is_ok());
        taken.pop();
        assert!(places.take(session_id(1), false).is_ok());
        drop(taken);
        assert!(places.0.lock().is_empty());
    }
}
