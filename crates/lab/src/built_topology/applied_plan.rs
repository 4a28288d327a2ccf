//! What of a topology stands on this machine: the steps of a plan with their journal, and whether they are still so.

use std::path::{Path, PathBuf};

use plan::{Drift, Journal, Kernel, Made, Plan, StepError, Undone};

use crate::{LabError, slug};

/// A plan that was applied. Dropping it leaves the journal, so that the owner's remains are found.
pub(crate) struct AppliedPlan {
    name: String,
    /// The beginning of its namespaces' names.
    prefix: String,
    journal: Option<Journal>,
    kernel: Kernel,
    /// What was built, to be compared with what is there after a trial.
    made: Option<Made>,
    dir: PathBuf,
}

impl AppliedPlan {
    /// Makes a candidate's directory, which must not exist yet, with its journal beside it; `fill` puts in what the
    /// plan refers to. On failure neither is left.
    pub(crate) fn begin(
        name: &str,
        prefix: &str,
        dir: &Path,
        fill: impl FnOnce(&Path) -> Result<(), LabError>,
    ) -> Result<AppliedPlan, LabError> {
        let kernel = Kernel::new()?;
        std::fs::create_dir_all(dir.parent().unwrap_or(dir)).map_err(LabError::file("create", dir))?;
        std::fs::create_dir(dir).map_err(LabError::file("create", dir))?;
        let begun = fill(dir).and_then(|()| Ok(Journal::create(&journal_of(dir))?));
        let journal = begun.inspect_err(|_| {
            // What has no journal is not taken back, and private keys may be there. The error before matters
            // more than this one.
            let _ = std::fs::remove_dir_all(dir);
        })?;
        let (name, prefix) = (name.to_owned(), prefix.to_owned());
        Ok(AppliedPlan { name, prefix, journal: Some(journal), kernel, made: None, dir: dir.to_owned() })
    }

    /// The directory for the files of the candidate's servers and plugins.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Applies the plan, with the candidate's journal.
    pub(crate) fn apply(&mut self, plan: &Plan) -> Result<(), LabError> {
        let journal = self.journal.as_mut().expect("what stands has its journal until it is taken down");
        plan::apply(plan, journal, &mut self.kernel)
            .map_err(|why| LabError::Build { candidate: self.name.clone(), why: Box::new(why) })?;
        Ok(())
    }

    /// Looks at all that was built, before the first trial. Returns what is not as the plan has it.
    pub(crate) fn take_stock(&mut self, plan: &Plan) -> Result<Vec<Drift>, LabError> {
        let made = Made::of(plan, &mut self.kernel);
        let (made, changes) = made.map_err(|source| self.look_error(source))?;
        self.made = Some(made);
        Ok(changes)
    }

    /// What is wrong where something is not as the plan has it: that, and what was left when it was undone therefore.
    pub(crate) fn otherwise(change: &Drift, left: Vec<String>) -> String {
        std::iter::once(format!("it was built, and yet {change}")).chain(left).collect::<Vec<_>>().join("; ")
    }

    /// What has changed since it was built, in words; `None` if nothing has. Takes about a millisecond, in which
    /// nothing may be measured.
    pub(crate) fn changed(&mut self) -> Result<Option<String>, LabError> {
        let Some(made) = &self.made else { return Ok(None) };
        let change = made.changed(&mut self.kernel).map_err(|source| self.look_error(source))?;
        Ok(change.map(|change| self.for_readers(&change.to_string())))
    }

    /// With the names of namespaces that the commands in the record have: without the id of this run.
    pub(crate) fn for_readers(&self, what: &str) -> String {
        what.replace(&self.prefix, &format!("hg-{}", slug(&self.name)))
    }

    /// Whether it stands, and is this process's to take down.
    pub(crate) fn stands(&self) -> bool {
        self.journal.is_some()
    }

    /// Lets it stand when this process ends.
    pub(crate) fn leave(&mut self) {
        self.journal = None;
    }

    /// Undoes the plan and removes the directory. Where a step cannot be undone the journal stays, so that
    /// `hostgap clean` can try again. Returns what another program has changed since, which is left as that has it, in
    /// words.
    pub(crate) fn undo(&mut self) -> Result<Vec<String>, LabError> {
        let Some(mut journal) = self.journal.take() else { return Ok(Vec::new()) };
        let (mut failures, mut left) = (Vec::new(), Vec::new());
        for (placed, undone) in plan::undo(&mut journal, &mut self.kernel) {
            let commands = || placed.commands().join("; ");
            match &undone {
                Undone::Failed { why } => failures.push(format!("{}: {why}", commands())),
                Undone::ChangedByOther { .. } => {
                    left.push(self.for_readers(&format!("{}: {undone}", commands())));
                }
                Undone::Restored
                | Undone::AlreadySo
                | Undone::LeftToOthers { .. }
                | Undone::Gone
                | Undone::Rebooted => {}
            }
        }
        if !failures.is_empty() {
            return Err(LabError::NotUndone { candidate: self.name.clone(), failures: failures.join("; ") });
        }
        let path = journal_of(&self.dir);
        std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        std::fs::remove_dir_all(&self.dir).map_err(LabError::file("remove", &self.dir))?;
        Ok(left)
    }

    fn look_error(&self, why: StepError) -> LabError {
        LabError::Look { candidate: self.name.clone(), why: Box::new(why) }
    }
}

/// The journal beside a candidate's directory. Names with a point have no extension: `loss 0.1 %` and `loss 0.5 %` are
/// two candidates.
fn journal_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(".journal");
    dir.with_file_name(name)
}
