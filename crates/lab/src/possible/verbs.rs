//! Where messages by RDMA verbs can be raced.

use record::StackKind;

use crate::{Contender, LabError};

/// Marks the contenders that cannot race because they would need devices in the machine's own namespace. It is an error
/// if one of them is required.
pub(crate) fn leave_out(contenders: &mut [Contender], in_guest: bool) -> Result<(), LabError> {
    let needy = contenders.iter_mut().filter(|contender| contender.stack.kind == StackKind::Verbs);
    for contender in needy.filter(|_| !in_guest) {
        // To name what the machine lacks would not help: even with it the race could not run here.
        contender.unmet.clear();
        contender.cannot([
            "devices of software RoCE receive in a machine's own network namespace alone, where a race makes nothing: race \
             it in a virtual machine (--kernel debian:6.12)"
                .to_owned(),
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use linux::features::Facts;
    use record::{Experiment, Machines, Workload, WorkloadKind};

    use super::*;
    use crate::cni::PluginDirs;
    use crate::field;

    #[test]
    fn a_machine_of_somebodys_has_no_such_race() {
        let workload = Workload::of(WorkloadKind::Verbs);
        let vm = Some(Machines { kernels: vec!["debian:6.12".to_owned()], ..Machines::default() });
        let experiment = Experiment { workload, vm, ..Experiment::default() };
        let mut contenders = field(&experiment, &Facts::default(), &PluginDirs::default()).unwrap();
        leave_out(&mut contenders, true).unwrap();
        assert!(contenders.iter().all(Contender::races));
        leave_out(&mut contenders, false).unwrap();
        let left_out = contenders.iter().filter(|contender| contender.unmet.join("").contains("--kernel"));
        assert_eq!(left_out.count(), 3);
        contenders[2].required = true;
        let error = leave_out(&mut contenders, false).unwrap_err().to_string();
        assert!(error.starts_with("run host, verbs here: devices of software RoCE receive"), "{error}");
    }
}
