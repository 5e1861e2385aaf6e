//! The statement that lists profiles. It is frequent, so it is prepared once per connection.

use std::sync::LazyLock;

use casement_domain::{OrganizationId, ProjectId};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Nullable, Text, Uuid as SqlUuid};

use super::ProfileRow;
use crate::column::Column;
use crate::statement::Statement;

static LIST: LazyLock<Statement> = LazyLock::new(|| Statement::cut(include_str!("list.sql")));

/// A page of profiles; [`ProfileRow`]s.
pub(super) struct ListProfiles<'a> {
    pub(super) project: Column<ProjectId>,
    pub(super) organization: Option<Column<OrganizationId>>,
    pub(super) name: Option<&'a str>,
    pub(super) query: Option<&'a str>,
    pub(super) limit: i64,
    pub(super) offset: i64,
}

impl QueryId for ListProfiles<'_> {
    type QueryId = ListProfiles<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for ListProfiles<'_> {
    type SqlType = diesel::dsl::AsSelect<ProfileRow, Pg>;
}

impl QueryFragment<Pg> for ListProfiles<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        LIST.walk(out, |out, number| match number {
            "1" => out.push_bind_param::<SqlUuid, _>(&self.project),
            "2" => out.push_bind_param::<Nullable<SqlUuid>, _>(&self.organization),
            "3" => out.push_bind_param::<Nullable<Text>, _>(&self.name),
            "4" => out.push_bind_param::<Nullable<Text>, _>(&self.query),
            "5" => out.push_bind_param::<BigInt, _>(&self.limit),
            _ => out.push_bind_param::<BigInt, _>(&self.offset),
        })
    }
}
