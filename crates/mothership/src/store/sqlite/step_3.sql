-- Version 3: a creation asks whether its facility is in use, and a first start tells all that waits for the facility where it lies.
CREATE INDEX work_facility ON work (facility_id, phase);
