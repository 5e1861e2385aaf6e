//! The table of results: the figures, their references and their targets.

use std::fmt;

/// One row.
#[derive(Debug, Default)]
pub(crate) struct Row {
    what: String,
    ours: String,
    against: String,
    ratio: String,
    target: String,
    met: String,
}

/// All rows, printed as Markdown.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

/// The limit of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// The figure is at most this.
    Most(f64),
    /// The figure is at least this.
    Least(f64),
}

impl Limit {
    /// Returns true if the figure, rounded to hundredths as in the table, meets the limit. Smaller differences are
    /// noise.
    fn holds(self, figure: f64) -> bool {
        let figure = (figure * 100.0).round() / 100.0;
        match self {
            Self::Most(limit) => figure <= limit,
            Self::Least(limit) => figure >= limit,
        }
    }
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, ours: impl Into<String>) -> Self {
        Self { what: what.into(), ours: ours.into(), ..Self::default() }
    }

    /// Adds a reference, and our figure divided by it.
    pub(crate) fn against(mut self, what: impl Into<String>, ratio: f64) -> Self {
        self.against = what.into();
        self.ratio = format!("×{ratio:.2}");
        self
    }

    /// Adds a related figure without a ratio.
    pub(crate) fn beside(mut self, what: impl Into<String>) -> Self {
        self.against = what.into();
        self
    }

    /// Adds a target, described by `words`. The row meets its targets if every figure is within its limit.
    pub(crate) fn target(mut self, words: &str, figure: f64, limit: Limit) -> Self {
        let before = if self.target.is_empty() { String::new() } else { format!("{}, ", self.target) };
        self.target = format!("{before}{words}");
        let met = limit.holds(figure) && self.met != "no";
        self.met = if met { "yes" } else { "no" }.to_owned();
        self
    }

    fn cells(&self) -> [&str; 6] {
        [&self.what, &self.ours, &self.against, &self.ratio, &self.target, &self.met]
    }
}

impl Table {
    pub(crate) fn add(&mut self, row: Row) {
        eprintln!("    {}", row.cells().join(" | "));
        self.0.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | ours | against | ratio | target | met |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        self.0.iter().try_for_each(|row| writeln!(f, "| {} |", row.cells().join(" | ")))
    }
}

/// Formats milliseconds with the significant digits.
pub(crate) fn ms(value: f64) -> String {
    match value {
        v if v < 1.0 => format!("{v:.3} ms"),
        v if v < 100.0 => format!("{v:.1} ms"),
        v => format!("{v:.0} ms"),
    }
}
