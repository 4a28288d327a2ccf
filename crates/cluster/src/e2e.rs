//! Kubernetes' own tests of networks.

use anyhow::{Context, Result, bail};

use crate::{Cluster, image};

impl Cluster {
    /// Runs Kubernetes' end-to-end tests, those that the arguments select (`--ginkgo.focus=PATTERN`,
    /// `--ginkgo.skip=PATTERN`), and returns how many passed.
    ///
    /// # Errors
    /// One fails, or none is selected; the error has what the tests say.
    pub fn e2e<A: AsRef<str>>(&self, arguments: &[A]) -> Result<usize> {
        self.provide(&image::AGNHOST)?;
        let mut tests = self.inside("e2e.test");
        tests.arg("--kubeconfig").arg(self.folder.join("admin.kubeconfig"));
        tests.args(["--provider=local", "--dump-logs-on-failure=false", "--ginkgo.no-color"]);
        tests.args(arguments.iter().map(AsRef::as_ref));
        let output = tests.output().context("could not start e2e.test")?;
        let text = String::from_utf8_lossy(&output.stdout);
        match passed(&text).filter(|_| output.status.success()) {
            Some(count) => Ok(count),
            None => bail!("{text}{}\n{}", String::from_utf8_lossy(&output.stderr), self.last_words()),
        }
    }
}

/// How many tests passed, by the last line of Ginkgo: `SUCCESS! -- 5 Passed | 0 Failed | …`. A run of
/// none did not pass.
pub fn passed(text: &str) -> Option<usize> {
    let counts = text.lines().find_map(|line| line.strip_prefix("SUCCESS! -- "))?;
    counts.split_once(" Passed")?.0.parse().ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_without_tests_did_not_pass() {
        let ended = |line: &str| passed(&format!("Ran 3 of 5 Specs in 45 seconds\n{line}\nPASS\n"));
        assert_eq!(ended("SUCCESS! -- 3 Passed | 0 Failed | 0 Pending | 2 Skipped"), Some(3));
        assert_eq!(ended("SUCCESS! -- 0 Passed | 0 Failed | 0 Pending | 5 Skipped"), None);
        assert_eq!(ended("FAIL! -- 2 Passed | 1 Failed | 0 Pending | 2 Skipped"), None);
    }
}
