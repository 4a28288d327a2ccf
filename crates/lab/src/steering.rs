//! Whose CPUs work on received packets: a choice that must be the same for all candidates, and is made before the race.
//!
//! On two machines the receiver does its own receive work. On one machine that takes RPS, and RPS takes an
//! inter-processor interrupt for a packet, which is a microsecond on bare metal and may be ten in a virtual machine
//! whose hypervisor traps it. There the interrupts would be most of what a race sees: all data paths would look alike.
//! So the reference is measured both ways, and steering is given up where it costs too much. Without it the sender's
//! CPU does the receiver's softirq work, in both directions alike.

use std::path::Path;
use std::time::Duration;

use record::{Load, Placement, Steering};

use crate::built_topology::{BuiltTopology, Staffing};
use crate::steering_choice::Chosen;
use crate::trial::{Method, rest, run};
use crate::{LabError, Shape};

/// Steering is given up if the reference then answers more than 1/this as many requests.
const WORTH: f64 = 0.8;
/// Slices each way, alternating; the median counts.
const SLICES: usize = 5;
/// A slice of the comparison.
const SLICE: Duration = Duration::from_millis(100);

/// Decides. `shape` gives the reference's topology for a part of a name and a way of steering.
pub fn choose(
    steering: Steering,
    connections: u32,
    method: &Method,
    staffing: &Staffing,
    dir: &Path,
    shape: impl Fn(&str, bool) -> Shape,
) -> Result<Chosen, LabError> {
    match steering {
        Steering::Receiver => return Ok(Chosen { steered: true, why: "as asked".to_owned() }),
        Steering::Sender => return Ok(Chosen { steered: false, why: "as asked".to_owned() }),
        Steering::Auto => {}
    }
    if shape("", false).placement == Placement::SameNode {
        return Ok(Chosen { steered: false, why: "nothing crosses the wire".to_owned() });
    }
    if shape("", false).cards.is_some() {
        return Ok(Chosen {
            steered: false,
            why: "cards interrupt the CPUs that their drivers have chosen".to_owned(),
        });
    }
    if method.cpus.client == method.cpus.server {
        return Ok(Chosen { steered: false, why: "both nodes share one CPU".to_owned() });
    }
    let body_bytes = staffing.workload.body_bytes[0];
    let build = |name: &str, steered| {
        let mut built = BuiltTopology::build("host", shape(name, steered), staffing, &dir.join(name))?;
        built.connect(body_bytes, connections).map(|()| built)
    };
    let mut ways = [build("steered", true)?, build("unsteered", false)?];
    let saturate = Load::closed_loop(body_bytes);
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..SLICES {
        for (built, rates) in ways.iter_mut().zip(&mut rates) {
            rest(method, SLICE);
            rates.push(run(built, method, &saturate, SLICE, None)?.answered_per_s());
        }
    }
    for built in ways {
        built.take_down()?;
    }
    let [with, without] = rates.map(|rates| stats::median(&rates).expect("there are slices"));
    let steered = with >= WORTH * without;
    let why = format!("host answers {with:.0} requests/s with RPS and {without:.0} without");
    Ok(Chosen { steered, why })
}
