//! Resources: what a statement is about, and what an operation touches.

use std::fmt;

use ulid::Ulid;

use super::action::{Kind, Level};
use crate::field::{FieldCode, InvalidValue, one_of};
use crate::ids::{ProjectId, parse_ulid};

/// The maximum length of a resource in characters: the longest one that is valid has fewer.
pub const MAX_LENGTH: usize = 128;

/// Which resource of a kind an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one with this id.
    Id(Ulid),
    /// None that exists, any of them, or one that is named by its name: only a statement on all of them allows it.
    Any,
}

impl Which {
    /// Returns which resource the text of a path names.
    #[must_use]
    pub fn named(text: &str) -> Self {
        parse_ulid(text).map_or(Self::Any, Self::Id)
    }
}

/// What an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A resource in a project.
    InProject(ProjectId, Kind, Which),
    /// A project.
    Project(Which),
    /// A resource of the organization.
    InOrganization(Kind, Which),
}

impl Target {
    /// Returns the kind of the resource.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::InProject(_, kind, _) | Self::InOrganization(kind, _) => kind,
            Self::Project(_) => Kind::Projects,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = match *self {
            Self::InProject(project, kind, which) => {
                ResourcePattern::InProject { project: Some(project.ulid()), kind: Some(kind), id: which.id() }
            }
            Self::Project(which) => ResourcePattern::Project(which.id()),
            Self::InOrganization(kind, which) => ResourcePattern::InOrganization { kind: Some(kind), id: which.id() },
        };
        pattern.fmt(f)
    }
}

impl Which {
    const fn id(self) -> Option<Ulid> {
        match self {
            Self::Id(id) => Some(id),
            Self::Any => None,
        }
    }

    /// Returns whether a statement on `selected` (`None`: on all) includes it.
    fn is_in(self, selected: Option<Ulid>) -> bool {
        selected.is_none_or(|selected| self == Self::Id(selected))
    }
}

/// The resources of a statement. In every place `None` means all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourcePattern {
    /// `*`: everything.
    Everything,
    /// `projects/<project>`: the project itself.
    Project(Option<Ulid>),
    /// `projects/<project>/*`: the project and everything in it.
    WholeProject(Option<Ulid>),
    /// `projects/<project>/<kind>/<id>`.
    InProject { project: Option<Ulid>, kind: Option<Kind>, id: Option<Ulid> },
    /// `organization/<kind>/<id>`.
    InOrganization { kind: Option<Kind>, id: Option<Ulid> },
}

impl ResourcePattern {
    /// Parses the text of a statement.
    ///
    /// # Errors
    /// `too_long`; `invalid_format`; `not_allowed` for a kind that does not exist there.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        crate::field::check_max_length(text, MAX_LENGTH)?;
        let segments: Vec<&str> = text.split('/').collect();
        match segments.as_slice() {
            ["*"] => Ok(Self::Everything),
            ["projects", project] => Ok(Self::Project(id_or_any(project)?)),
            ["projects", project, "*"] => Ok(Self::WholeProject(id_or_any(project)?)),
            ["projects", project, kind, id] => Ok(Self::InProject {
                project: id_or_any(project)?,
                kind: kind_or_any(kind, Level::InProject)?,
                id: id_or_any(id)?,
            }),
            ["organization", "*"] => Ok(Self::InOrganization { kind: None, id: None }),
            ["organization", kind, id] => {
                Ok(Self::InOrganization { kind: kind_or_any(kind, Level::InOrganization)?, id: id_or_any(id)? })
            }
            _ => Err(bad_form()),
        }
    }

    pub(super) fn includes(self, target: Target) -> bool {
        let project_of = |project: ProjectId| Which::Id(project.ulid());
        match (self, target) {
            (Self::Everything, _) => true,
            (Self::Project(selected) | Self::WholeProject(selected), Target::Project(which)) => which.is_in(selected),
            (Self::WholeProject(selected), Target::InProject(project, ..)) => project_of(project).is_in(selected),
            (Self::InProject { project: selected, kind, id }, Target::InProject(project, of, which)) => {
                project_of(project).is_in(selected) && kind.is_none_or(|kind| kind == of) && which.is_in(id)
            }
            (Self::InOrganization { kind, id }, Target::InOrganization(of, which)) => {
                kind.is_none_or(|kind| kind == of) && which.is_in(id)
            }
            (
                Self::Project(_) | Self::WholeProject(_) | Self::InProject { .. } | Self::InOrganization { .. },
                Target::InProject(..) | Target::Project(_) | Target::InOrganization(..),
            ) => false,
        }
    }

    /// Returns whether every resource of `other` is one of these.
    pub(super) fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::Everything, _) => true,
            (Self::WholeProject(own), Self::Project(their) | Self::WholeProject(their))
            | (Self::Project(own), Self::Project(their)) => includes(own, their),
            (Self::WholeProject(own), Self::InProject { project, .. }) => includes(own, project),
            (
                Self::InProject { project, kind, id },
                Self::InProject { project: their, kind: their_kind, id: their_id },
            ) => includes(project, their) && includes(kind, their_kind) && includes(id, their_id),
            (Self::InOrganization { kind, id }, Self::InOrganization { kind: their_kind, id: their_id }) => {
                includes(kind, their_kind) && includes(id, their_id)
            }
            (
                Self::Project(_) | Self::WholeProject(_) | Self::InProject { .. } | Self::InOrganization { .. },
                Self::Everything
                | Self::Project(_)
                | Self::WholeProject(_)
                | Self::InProject { .. }
                | Self::InOrganization { .. },
            ) => false,
        }
    }

    /// Returns whether at most one resource of the kind is among these.
    pub(super) fn is_of_one(self, kind: Kind) -> bool {
        match self {
            Self::Everything => false,
            Self::Project(project) => project.is_some(),
            Self::WholeProject(project) => project.is_some() && kind == Kind::Projects,
            Self::InProject { id, .. } | Self::InOrganization { id, .. } => id.is_some(),
        }
    }

    /// Returns whether resources of the kind can be among these.
    pub(super) fn can_include(self, kind: Kind) -> bool {
        match self {
            Self::Everything => true,
            Self::Project(_) => kind.level() == Level::Project,
            Self::WholeProject(_) => kind.level() != Level::InOrganization,
            Self::InProject { kind: own, .. } => kind.level() == Level::InProject && own.is_none_or(|own| own == kind),
            Self::InOrganization { kind: own, .. } => {
                kind.level() == Level::InOrganization && own.is_none_or(|own| own == kind)
            }
        }
    }
}

/// Returns whether `own` (`None`: all) includes all of `their`.
fn includes<T: PartialEq>(own: Option<T>, their: Option<T>) -> bool {
    own.is_none() || own == their
}

fn bad_form() -> InvalidValue {
    let message = "must be *, projects/<project id>/<kind>/<id>, projects/<project id>/*, projects/<project id>, \
                   organization/<kind>/<id> or organization/*, with * in place of any id or kind";
    InvalidValue::new(FieldCode::InvalidFormat, message)
}

fn id_or_any(text: &str) -> Result<Option<Ulid>, InvalidValue> {
    match text {
        "*" => Ok(None),
        text => parse_ulid(text).map(Some).map_err(|_| bad_form()),
    }
}

fn kind_or_any(text: &str, level: Level) -> Result<Option<Kind>, InvalidValue> {
    if text == "*" {
        return Ok(None);
    }
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.level() == level).collect();
    let found = one_of(text, &kinds, Kind::as_str);
    found.map(Some).map_err(|bad| InvalidValue::new(bad.code, format!("its kind {} or *", bad.message)))
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = |id: Option<Ulid>| id.map_or_else(|| "*".to_owned(), |id| id.to_string().to_ascii_lowercase());
        let kind_text = |kind: Option<Kind>| kind.map_or("*", Kind::as_str);
        match *self {
            Self::Everything => f.write_str("*"),
            Self::Project(project) => write!(f, "projects/{}", id(project)),
            Self::WholeProject(project) => write!(f, "projects/{}/*", id(project)),
            Self::InProject { project, kind, id: one } => {
                write!(f, "projects/{}/{}/{}", id(project), kind_text(kind), id(one))
            }
            Self::InOrganization { kind: None, id: None } => f.write_str("organization/*"),
            Self::InOrganization { kind, id: one } => write!(f, "organization/{}/{}", kind_text(kind), id(one)),
        }
    }
}
