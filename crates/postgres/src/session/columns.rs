//! The columns of a session that several fields make up: its pool and its state.

use casement_domain::PoolId;
use casement_domain::name::SlugName;
use casement_domain::session::{EndReason, PoolRef, SessionState};
use diesel::prelude::*;

use crate::column::{Column, Stored, row};
use crate::error::BadRow;
use crate::schema::sessions;

row! {
    #[derive(Debug, Queryable, Selectable, Insertable)]
    #[diesel(table_name = sessions, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct PoolColumns {
        pool_id: Option<Column<PoolId>>,
        pool_name: Option<Column<SlugName>>,
    }
}

impl Stored<Option<PoolRef>> for PoolColumns {
    fn of(pool: &Option<PoolRef>) -> Self {
        let name = pool.as_ref().and_then(|pool| pool.name.clone());
        Self { pool_id: pool.as_ref().map(|pool| Column(pool.id)), pool_name: name.map(Column) }
    }

    fn value(self) -> Result<Option<PoolRef>, BadRow> {
        Ok(self.pool_id.map(|id| PoolRef { id: id.0, name: self.pool_name.map(|name| name.0) }))
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = sessions, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(crate) struct StateColumns {
        state: String,
        end_reason: Option<Column<EndReason>>,
    }
}

impl Stored<SessionState> for StateColumns {
    fn of(state: &SessionState) -> Self {
        let end_reason = match state {
            SessionState::Starting | SessionState::Active => None,
            SessionState::Ended(reason) => Some(Column(*reason)),
        };
        Self { state: state.as_str().to_owned(), end_reason }
    }

    fn value(self) -> Result<SessionState, BadRow> {
        match (self.state.as_str(), self.end_reason) {
            ("starting", None) => Ok(SessionState::Starting),
            ("active", None) => Ok(SessionState::Active),
            ("ended", Some(Column(reason))) => Ok(SessionState::Ended(reason)),
            (other, _) => Err(BadRow::new("sessions.state", other)),
        }
    }
}
