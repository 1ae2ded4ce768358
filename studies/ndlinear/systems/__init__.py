"""Systems in which dense layers are replaced by NdLinear and by its rivals; ndlinear_systems.py runs them."""
from . import forecasts, images, language, sentences, tables, waves

FAMILIES = (language, forecasts, waves, tables, images, sentences)
SYSTEMS = {system.name: system for family in FAMILIES for system in family.SYSTEMS}
