//! The candidates of a race of messages by RDMA verbs that names none.

use record::{Candidate, Experiment, Stack, StackKind, StackWait};

/// Where messages meet the data path of a pod, if no candidates are named: with the path that routes.
const POD: &str = "ptp+direct";

/// The candidates of an experiment that names none: TCP and verbs, on the host and from a pod. Where instructions are
/// counted no candidate polls.
pub(super) fn usual(experiment: &Experiment) -> Vec<Candidate> {
    let of = |path: &str, kind, wait| {
        let stack = Stack { kind, wait };
        Candidate { path: path.to_owned(), stack, ..Candidate::default() }
    };
    let mut candidates = vec![of("host", StackKind::Verbs, StackWait::Sleep)];
    if !experiment.exact() {
        candidates.push(of("host", StackKind::Verbs, StackWait::Spin));
    }
    candidates.push(of(POD, StackKind::Kernel, StackWait::Sleep));
    candidates.push(of(POD, StackKind::Verbs, StackWait::Sleep));
    candidates
}

#[cfg(test)]
mod tests {
    use linux::features::Facts;
    use record::{Machines, Workload, WorkloadKind};

    use super::*;
    use crate::cni::PluginDirs;
    use crate::field;

    fn experiment(exact: bool) -> Experiment {
        let vm = Some(Machines { kernels: vec!["debian:6.12".to_owned()], exact, ..Machines::default() });
        Experiment { workload: Workload::of(WorkloadKind::Verbs), vm, ..Experiment::default() }
    }

    fn names(experiment: &Experiment) -> Vec<String> {
        let contenders = field(experiment, &Facts::default(), &PluginDirs::default()).unwrap();
        contenders.into_iter().map(|contender| contender.name).collect()
    }

    #[test]
    fn no_names_stand_for_tcp_and_verbs_on_the_host_and_in_a_pod() {
        let all = ["host", "host again", "host, verbs", "host, verbs, polling", POD, "ptp+direct, verbs"];
        assert_eq!(names(&experiment(false)), all);
        let counted: Vec<_> = all.into_iter().filter(|name| !name.contains("polling")).collect();
        assert_eq!(names(&experiment(true)), counted);
    }
}
