//! The specification of the Container Network Interface as cases, to which any plugin can be put.
//!
//! A [`Case`] is a sentence of the specification and a function that judges whether a plugin does what it says.
//! [`run()`] puts a [`Subject`] (a plugin's executable with a configuration) to cases, and says of each whether it
//! passed, failed or does not apply. A failure has the call, the answer, and a script that shows it by hand.
//!
//! A new case goes into the file of its verb below `cases`: an entry in the list at its top, and its function below.
//! What a case can do is in `scene` (namespaces), `ask` and `answer` (calls), and `damage` (what is broken on purpose).
//!
//! Each case has a node and containers of its own, as network namespaces in a mount namespace in which `/run`,
//! `/var/lib/cni` and `/var/log/cni` are its own and all else is read-only. All of that ends with the thread that runs
//! the case, and so with the process, however that ends. There is nothing to clean up.

mod answer;
mod ask;
mod case;
mod cases;
mod damage;
mod defaults;
mod error;
mod node;
mod outcome;
mod run;
mod scene;
mod state;
mod subject;
mod transcript;

pub use case::{Case, Demand};
pub use cases::{ALL, all, find};
pub use defaults::{Defaults, KNOWN};
pub use error::ConformanceError;
pub use outcome::{Ended, Exchange, Fault, Outcome};
pub use run::{Conformance, Options, Report, run};
pub use subject::{Subject, search_path};
