//! Policies: which actions on which resources a key allows.

use std::fmt;
use std::sync::Arc;

use super::action::{Action, ActionPattern, Kind, Verb};
use super::resource::{ResourcePattern, Target};
use crate::field::{FieldCode, InvalidValue};

/// One allowed action on a resource. Its text has two parts, see [`action`](Self::action) and
/// [`resource`](Self::resource).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    action: ActionPattern,
    resource: ResourcePattern,
}

impl Statement {
    /// Parses a statement.
    ///
    /// # Errors
    /// The errors of its members `action` and `resource`; `not_allowed` if the action never applies to the resource.
    pub fn parse(action: &str, resource: &str) -> Result<Self, InvalidValue> {
        let action = ActionPattern::parse(action).map_err(|bad| bad.of("action"))?;
        let resource = ResourcePattern::parse(resource).map_err(|bad| bad.of("resource"))?;
        let bad = match action.kind {
            Some(kind) if !resource.can_include(kind) => {
                format!("includes no {}, which the action is about", kind.as_str())
            }
            _ if !Kind::ALL.into_iter().any(|kind| is_possible(action, resource, kind)) => {
                format!("covers no resource of the action {action}")
            }
            _ => return Ok(Self { action, resource }),
        };
        Err(InvalidValue::new(FieldCode::NotAllowed, bad).of("resource"))
    }

    /// Returns the text of the allowed actions: `browsers:read`, `browsers:*`, `*:read` or `*`.
    #[must_use]
    pub fn action(&self) -> String {
        self.action.to_string()
    }

    /// Returns the text of the resources, as `projects/<id>/browsers/*`.
    #[must_use]
    pub fn resource(&self) -> String {
        self.resource.to_string()
    }

    fn allows(self, action: Action, target: Target) -> bool {
        self.action.includes(action) && self.resource.includes(target)
    }

    /// Returns whether this statement allows everything that `other` allows.
    fn covers(self, other: Self) -> bool {
        self.action.covers(other.action) && self.resource.covers(other.resource)
    }
}

/// Returns whether an operation asks for an action of the pattern with a resource of this kind that the other pattern
/// includes. What does not exist yet has no id, so `create` needs all resources of the kind; only the rotation of a key
/// asks for it with one.
fn is_possible(action: ActionPattern, resource: ResourcePattern, kind: Kind) -> bool {
    let mut verbs = kind.verbs().iter().filter(|verb| action.includes(Action::new(kind, **verb)));
    let creates = kind == Kind::ApiKeys || !resource.is_of_one(kind);
    resource.can_include(kind) && verbs.any(|verb| creates || *verb != Verb::Create)
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)
    }
}

/// The unchecked form of a [`Statement`].
#[derive(Clone, Debug, Default)]
pub struct StatementRequest {
    /// The allowed action; required.
    pub action: Option<String>,
    /// The resource; required.
    pub resource: Option<String>,
}

impl StatementRequest {
    fn parse(self) -> Result<Statement, InvalidValue> {
        let required = |member| InvalidValue::new(FieldCode::Required, "is required").of(member);
        let action = self.action.ok_or_else(|| required("action"))?;
        let resource = self.resource.ok_or_else(|| required("resource"))?;
        Statement::parse(&action, &resource)
    }
}

/// The unchecked form of a [`Policy`].
#[derive(Clone, Debug, Default)]
pub struct PolicyRequest {
    /// The statements; required.
    pub statements: Option<Vec<StatementRequest>>,
}

/// The permissions of a key. Everything that no statement allows is refused. Clones share the statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy(Arc<[Statement]>);

impl Policy {
    /// The maximum number of statements.
    pub const MAX_STATEMENTS: usize = 50;

    /// Creates a policy of these statements.
    ///
    /// # Errors
    /// `too_many`.
    pub fn new(statements: Vec<Statement>) -> Result<Self, InvalidValue> {
        if statements.len() > Self::MAX_STATEMENTS {
            let message = format!("must have at most {}", Self::MAX_STATEMENTS);
            return Err(InvalidValue::new(FieldCode::TooMany, message).of("statements"));
        }
        Ok(Self(statements.into()))
    }

    /// Checks a policy.
    ///
    /// # Errors
    /// All errors of the statements, below `statements`.
    pub fn parse(request: PolicyRequest) -> Result<Self, InvalidValue> {
        let required = || InvalidValue::new(FieldCode::Required, "is required").of("statements");
        let requested = request.statements.ok_or_else(required)?;
        let (mut statements, mut refused) = (Vec::new(), Vec::new());
        // The statements beyond the maximum are refused together.
        for (n, one) in requested.into_iter().enumerate().take(Self::MAX_STATEMENTS + 1) {
            match one.parse() {
                Ok(statement) => statements.push(statement),
                Err(bad) => refused.push(bad.of(format!("statements[{n}]"))),
            }
        }
        InvalidValue::any(refused)?;
        Self::new(statements)
    }

    /// Returns the statements.
    #[must_use]
    pub fn statements(&self) -> &[Statement] {
        &self.0
    }

    fn allows(&self, action: Action, target: Target) -> bool {
        self.0.iter().any(|statement| statement.allows(action, target))
    }
}

/// The error of a request that the policy of its key does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsufficientScope {
    /// No statement allows the action.
    #[error("this needs {action} on {target}, which the key's policy does not allow")]
    Action {
        /// The action.
        action: Action,
        /// The resource.
        target: Target,
    },
    /// The policy of a key to be made has a statement that no statement of the own policy covers.
    #[error("a key cannot make one that may do more than itself: no statement of its own policy covers {0}")]
    Statement(Statement),
    /// The key to be made opens another project than the only one of the own key, or all.
    #[error("a key cannot make one that may do more than itself: this key opens one project alone")]
    Project,
    /// The key to be made has no policy, but the own key has one.
    #[error("a key cannot make one that may do more than itself: the new key needs a policy within that of this key")]
    NoPolicy,
}

/// What a credential allows in its scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions(Option<Policy>);

impl Permissions {
    /// Everything.
    pub const ALL: Self = Self(None);

    /// Returns whether everything is allowed.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the policy; `None`: everything is allowed.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.0.as_ref()
    }

    /// Returns whether the action on the resource is allowed.
    #[must_use]
    pub fn allows(&self, action: Action, target: Target) -> bool {
        self.0.as_ref().is_none_or(|policy| policy.allows(action, target))
    }

    /// Checks that the action on the resource is allowed.
    ///
    /// # Errors
    /// [`InsufficientScope::Action`].
    pub fn require(&self, action: Action, target: Target) -> Result<(), InsufficientScope> {
        if self.allows(action, target) { Ok(()) } else { Err(InsufficientScope::Action { action, target }) }
    }

    /// Checks that `other` allows nothing more. Each statement of `other` must be covered by one of these.
    ///
    /// # Errors
    /// [`InsufficientScope::Statement`] and [`InsufficientScope::NoPolicy`].
    pub fn require_within(&self, other: &Self) -> Result<(), InsufficientScope> {
        let Some(own) = &self.0 else { return Ok(()) };
        let Some(other) = &other.0 else { return Err(InsufficientScope::NoPolicy) };
        let more = other.0.iter().find(|theirs| !own.0.iter().any(|mine| mine.covers(**theirs)));
        more.map_or(Ok(()), |statement| Err(InsufficientScope::Statement(*statement)))
    }
}

impl From<Option<Policy>> for Permissions {
    fn from(policy: Option<Policy>) -> Self {
        Self(policy)
    }
}
